"""A loss of one's own at the speed of the built-in ones."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from .base import Loss, check_loss, evaluated, grid

__all__ = ["CompiledLoss", "compiled"]


class CompiledLoss(Loss):
    """What :func:`compiled` returns: the same formulas and constants, summed by own kernels."""

    __slots__ = ("_loss",)

    def __init__(self, loss: Loss) -> None:
        self._loss = loss

    @property
    def loss(self) -> Loss:
        """The loss as it was written."""
        return self._loss

    @property
    def classification(self) -> bool:  # type: ignore[override]
        """Whether labels must be -1 and +1."""
        return self._loss.classification

    @property
    def convex(self) -> bool:  # type: ignore[override]
        """Whether the loss is convex in ``z``."""
        return self._loss.convex

    @property
    def lipschitz(self) -> float:  # type: ignore[override]
        """Largest size of the first derivative."""
        return self._loss.lipschitz

    @property
    def smoothness(self) -> float:  # type: ignore[override]
        """Lipschitz constant of the first derivative."""
        return self._loss.smoothness

    @property
    def hessian_lipschitz(self) -> float:  # type: ignore[override]
        """Lipschitz constant of the second derivative."""
        return self._loss.hessian_lipschitz

    @property
    def growth(self) -> tuple[float, float]:
        """Weak growth for rows of norm 1."""
        return self._loss.growth

    def value(self, z: Any, y: Any) -> Any:
        """Return the loss."""
        return self._loss.value(z, y)

    def derivative(self, z: Any, y: Any) -> Any:
        """Return the derivative in ``z``."""
        return self._loss.derivative(z, y)

    def second_derivative(self, z: Any, y: Any) -> Any:
        """Return the second derivative in ``z``."""
        return self._loss.second_derivative(z, y)

    def weak_growth(self, row_norm: float, beta1: float | None = None) -> tuple[float, float]:
        """Return ``(beta1, beta2)`` of weak growth."""
        return self._loss.weak_growth(row_norm, beta1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompiledLoss) and self._loss == other._loss

    def __hash__(self) -> int:
        return hash((CompiledLoss, self._loss))

    def __repr__(self) -> str:
        return f"compiled({self._loss!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return compiled, (self._loss,)  # compiled again where it is loaded


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
        If ``loss`` is not a loss (see :func:`check_loss`), or its compiled formulas differ
        from those of the arrays on a grid of predictions and labels.

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
    from ..kernels import own, twins

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
