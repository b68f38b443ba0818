"""What a problem is: all that a run, the door to its data and the queries ask of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from ..clipping import Clipping, check_clipping
from ..privacy.facts import PublicFacts
from ..regularizers import Regularizer

__all__ = ["Problem"]

_ANSWERS = (
    "_evaluate",
    "sums",
    "gradient_sum",
    "along",
    "hessian_sum",
    "hvp_sum",
    "minimise_tilted",
)
_PACKAGE = __name__.partition(".")[0] + "."


class Problem(ABC):
    """What is minimised, and what a private run may ask of it.

    A problem of your own is a subclass with the attributes below and four methods:
    :meth:`facts`, :meth:`value`, :meth:`gradient` and :meth:`gradient_sum`. Everything else has
    a default. Nothing that is not listed here is asked of it, except that the recorders
    ``"accuracy"`` and ``"gap"`` of :func:`~dpanalysis.minimize` need ``accuracy(w)`` and
    ``solve()``.

    **Public**, known to the world beside the answers: ``n``, ``d``, ``regularizer``, ``mu``,
    ``L``, :meth:`facts`, :meth:`check_clipping`, :meth:`initial`. None of them may depend on a
    private record; n is public by agreement. Where it is not, as under ``"add_or_remove_one"``,
    :meth:`facts` must state another ``n``, a nominal size, and how many records may be there
    (``max_records``): the door divides by ``facts.n`` and draws from the ``n`` records at hand.

    **Private**, seen by the door alone, which adds the noise: :meth:`gradient_sum`,
    :meth:`along`, :meth:`hessian_sum`, :meth:`hvp_sum`, :meth:`minimise_tilted`. What one record
    can change in them is bounded by :meth:`facts`.

    **Private, and without noise**: :meth:`value` and :meth:`gradient`. They are for reference
    and for what a run records beside its answer; a release of them has no guarantee.

    Attributes
    ----------
    n : int
        Number of records.
    d : int
        Number of parameters.
    regularizer : Regularizer or None
        Public penalty. It is added to the noisy answers, and never enters a sensitivity.
    mu, L : float
        Strong convexity and smoothness of the objective by public bounds; ``L`` may be inf.

    Examples
    --------
    The mean of numbers in [0, 1], which a record moves by at most 1/n:

    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> from dpanalysis.privacy.facts import PublicFacts
    >>> class Mean(dpa.Problem):
    ...     d, mu, L = 1, 1.0, 1.0
    ...     def __init__(self, x):
    ...         self.x, self.n = np.clip(x, 0.0, 1.0), len(x)
    ...     def facts(self, relation):
    ...         return PublicFacts(self.n, 1, 1.0, 1.0, relation, (1.0, 1.0))
    ...     def value(self, w):
    ...         return 0.5 * np.mean((np.asarray(w) - self.x) ** 2, axis=-1)
    ...     def gradient(self, w):
    ...         return np.asarray(w) - self.x.mean()
    ...     def gradient_sum(self, w, rows=None, clipping=None):
    ...         batches = [slice(None)] * len(w) if rows is None else rows
    ...         each = [np.clip(w[r] - self.x[batch], -1.0, 1.0) for r, batch in enumerate(batches)]
    ...         return np.array([[part.sum()] for part in each])
    >>> problem = Mean(np.linspace(0.0, 1.0, 101))
    >>> result = dpa.minimize(problem, dpa.methods.GradientDescent(1.0, 1))
    >>> result.w.round(9)
    array([[0.5]])
    """

    n: int
    d: int
    regularizer: Regularizer | None = None
    mu: float
    L: float

    # Public

    @abstractmethod
    def facts(self, relation: str) -> PublicFacts:
        """Return what is public of the problem under a neighbouring relation.

        The noise of every release is computed from these bounds, so they must hold for every
        record that may occur and must not be read off the data.

        Parameters
        ----------
        relation : {"replace_one", "add_or_remove_one"}
        """

    def check_clipping(self, clipping: Clipping | None) -> None:
        """Raise unless the rule bounds the gradient of every record that may occur.

        That is decided by public bounds, never by the data at hand. By default every rule is
        refused: the noise of a run with a rule is computed from its ``clip_norm``, which is too
        little unless :meth:`gradient_sum` weighs each record's gradient by ``rule.weight``.
        Override this where it does.

        Raises
        ------
        TypeError
            If ``clipping`` is not a rule of :mod:`dpanalysis.clipping` (or None).
        ValueError
            If the rule does not bound every record's gradient.
        """
        check_clipping(clipping)
        if clipping is not None:
            raise ValueError(
                f"{type(self).__name__} takes no clipping rule, got {clipping!r}: override "
                "check_clipping once gradient_sum weighs each record's gradient by "
                "clipping.weight(norm, loss)"
            )

    def initial(self, rng: Any = None) -> np.ndarray:
        """Return the public start of a run, shape ``(d,)``; zeros here.

        Parameters
        ----------
        rng : None, int, SeedSequence, Generator or SystemRandom
            Source of randomness for a start that is drawn.
        """
        return np.zeros(self.d)

    # Before anything is spent

    def check_private(self) -> None:
        """Raise where the guarantee's assumptions do not hold; the door asks before it sells.

        Here: a class that overrides a sum over records must override :meth:`facts` too, or a class
        below it. A problem adds what else it needs, for data that may have been changed since they
        were checked, or for arguments that were taken from the private data.

        Raises
        ------
        TypeError, ValueError
            Naming what is wrong.
        """
        order = type(self).__mro__

        def place(name: str) -> int:
            return next((k for k, kind in enumerate(order) if name in vars(kind)), len(order))

        states = place("facts")
        for name in _ANSWERS:
            answers = place(name)
            if answers < states and not order[answers].__module__.startswith(_PACKAGE):
                raise TypeError(
                    f"{order[answers].__name__} overrides {name}, but its facts are those of "
                    f"{order[states].__name__}: the noise would be computed from bounds on other "
                    "sums; override facts too (return super().facts(relation) where they hold)"
                )

    # Private: for the door

    @abstractmethod
    def gradient_sum(self, w: Any, rows: Any = None, clipping: Clipping | None = None) -> Any:
        """Return the sum of the records' (clipped) gradients for each iterate.

        Without the penalty and without a division: the door divides by the PUBLIC batch size.

        Parameters
        ----------
        w : ndarray of shape (R, d)
            Iterates of R replicates.
        rows : list of R int arrays, optional
            The batch of each replicate, empty ones included; all records by default.
        clipping : Clipping, optional
            Rule for the gradient of every record.

        Returns
        -------
        array of shape (R, d)
            Where the data live.
        """

    def along(
        self, w: np.ndarray, direction: np.ndarray, rows: Any = None
    ) -> Callable[[float], np.ndarray]:
        """Return the function t -> losses (m,) of the records ``rows`` at ``w - t direction``.

        Raises
        ------
        TypeError
            If the problem does not offer it, as by default.
        """
        self._lacks("along")

    def hessian_sum(self, w: Any, rows: Any = None) -> Any:
        """Sum the records' Hessians at ``w`` of shape (d,): ``(d, d)``, without the penalty.

        Raises
        ------
        TypeError
            If the problem does not offer it, as by default.
        """
        self._lacks("hessian_sum")

    def hvp_sum(self, w: Any, v: Any, rows: Any = None) -> Any:
        """Sum the records' Hessians at ``w`` times ``v``, without forming them: shape ``(d,)``.

        Raises
        ------
        TypeError
            If the problem does not offer it, as by default.
        """
        self._lacks("hvp_sum")

    def minimise_tilted(
        self, linear: np.ndarray, ridge: float, tolerance: float, size: float
    ) -> tuple[np.ndarray, int]:
        r"""Minimise the sum of losses over ``size`` + penalty + <linear, w> + ridge/2 ||w||^2.

        Returns the point, shape (d,), where the gradient's norm is at most ``tolerance``, and
        the number of gradients that it took.

        Raises
        ------
        TypeError
            If the problem does not offer it, as by default.
        """
        self._lacks("minimise_tilted")

    def _lacks(self, what: str) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} offers no {what}, which this query asks for: take a method "
            "that does without it, or another problem"
        )

    # Private and without noise: for reference

    @abstractmethod
    def value(self, w: Any) -> Any:
        """Objective at ``w``: a float for ``(d,)``, shape ``(R,)`` for ``(R, d)``."""

    @abstractmethod
    def gradient(self, w: Any) -> Any:
        """Gradient of the objective, the shape of ``w``."""
