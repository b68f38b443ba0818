"""A loss of one's own at the speed of the built-in ones."""

from __future__ import annotations

import warnings

import numpy as np

from ..losses.base import Loss, check_loss, evaluated, grid
from . import own, twins
from .wrapped import CompiledLoss

__all__ = ["compiled"]


def compiled(loss: Loss) -> Loss:
    """Return the same loss, with sums over samples as fast as those of a built-in one.

    The class's own ``value`` and ``derivative`` are compiled by Numba as functions of two
    numbers, once in a process (some seconds, at the first sum of each kind). In them

    - NumPy, or the module that ``array_api_compat.array_namespace(z)`` returns, stands for
      functions of numbers: ``exp``, ``log``, ``log1p``, ``where``, ``abs``, ``maximum`` and so
      on. ``exp``, ``log`` and ``log1p`` are replaced by polynomials with a relative error below
      1e-15, which run in vector registers;
    - ``self`` has its numbers only (fields, class attributes, properties), read at each sum;
    - helpers must be plain functions of the module, not methods;
    - nothing may be raised, since an error at one record would tell that it is there.

    Parameters
    ----------
    loss : Loss

    Returns
    -------
    Loss
        A built-in loss as it is; else the compiled one, or ``loss`` itself where Numba cannot
        compile it. It can be pickled, and is compiled again where it is loaded.

    Raises
    ------
    TypeError, ValueError
        If ``loss`` is not a loss (see :func:`dpanalysis.losses.check_loss`), or its compiled
        formulas differ from those of the arrays on a grid of predictions and labels.

    Warns
    -----
    UserWarning
        If it cannot be compiled; the message says why.

    Examples
    --------
    >>> import numpy as np
    >>> from dpanalysis import ERM, losses
    >>> class Soft(losses.Loss):
    ...     classification = True
    ...     lipschitz, smoothness = 0.5, 0.5
    ...     def value(self, z, y):
    ...         return 0.5 * (np.sqrt(1.0 + (1.0 - y * z) ** 2) - 1.0)
    ...     def derivative(self, z, y):
    ...         gap = 1.0 - y * z
    ...         return -0.5 * y * gap / np.sqrt(1.0 + gap**2)
    >>> problem = ERM(np.array([[1.0], [2.0]]), [1, -1], losses.compiled(Soft()))
    >>> problem.gradient(np.zeros(1))
    array([0.1768])
    """
    check_loss(loss)
    if twins.is_compiled_loss(loss):
        return loss
    try:
        formulas = own.loss_formulas(loss)
    except own.CannotCompile as reason:
        warnings.warn(
            f"{loss!r} is not compiled and its sums run as arrays, which is slower: {reason}",
            stacklevel=2,
        )
        return loss
    z, y = grid(loss)
    numbers = formulas.numbers(loss)
    for name, formula in (("value", formulas.value), ("derivative", formulas.derivative)):
        expected = evaluated(loss, name, z, y)
        if name == "derivative":
            expected = np.clip(expected, -loss.lipschitz, loss.lipschitz)
        found = np.array([formula(*pair, numbers) for pair in zip(z, y)])
        wrong = ~np.isclose(found, expected, rtol=1e-9, atol=1e-12, equal_nan=True)
        if wrong.any():
            k = int(np.argmax(wrong))
            raise ValueError(
                f"{type(loss).__name__}.{name} gives {expected[k]!r} for arrays and {found[k]!r} "
                f"compiled, at z = {z[k]:g} and y = {y[k]:g}"
            )
    return CompiledLoss(loss)
