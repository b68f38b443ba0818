"""A loss and a rule of one's own whose formulas are compiled, so that sums run in kernels."""

from __future__ import annotations

from typing import Any

from ..clipping import Clipping
from ..losses import Loss

__all__ = ["CompiledLoss", "CompiledRule"]


class CompiledLoss(Loss):
    """What :func:`dpanalysis.losses.compiled` returns: the same loss, compiled."""

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
    def flat_where_steep(self) -> bool:  # type: ignore[override]
        """Whether there is no curvature where the slope is largest."""
        return self._loss.flat_where_steep

    @property
    def lowest(self) -> float:  # type: ignore[override]
        """Lower bound on the values."""
        return self._loss.lowest

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


class CompiledRule(Clipping):
    """What :func:`dpanalysis.clipping.compiled` returns: the same rule, compiled."""

    def __init__(self, rule: Clipping) -> None:
        self._rule = rule

    @property
    def rule(self) -> Clipping:
        """The rule as it was written."""
        return self._rule

    @property
    def clip_norm(self) -> float:  # type: ignore[override]
        """The bound on the norm of one sample's weighted gradient."""
        return self._rule.clip_norm

    @property
    def needs_losses(self) -> bool:  # type: ignore[override]
        """Whether the weights depend on the samples' losses."""
        return self._rule.needs_losses

    @property
    def largest_weight(self) -> float:
        """Largest weight of any sample."""
        return self._rule.largest_weight

    def wanted(self, norms: Any, losses: Any) -> Any:
        """Return the weights by the rule's formula."""
        return self._rule.wanted(norms, losses)

    def weight(self, norms: Any, losses: Any = None) -> Any:
        """Return the rule's weights."""
        return self._rule.weight(norms, losses)

    def check(self, loss: Any, radius: float) -> None:
        """Raise ValueError where the rule does."""
        self._rule.check(loss, radius)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompiledRule) and self._rule == other._rule

    def __hash__(self) -> int:
        return hash((CompiledRule, self._rule))

    def __repr__(self) -> str:
        return f"compiled({self._rule!r})"
