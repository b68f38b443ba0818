"""Losses with a public weight for each of the two labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from .._validation import check_positive
from ..losses import Loss

_BALANCED = (
    "class_weight='balanced' is computed from how often each class occurs, which the labels of the "
    "private records decide, and no epsilon pays for it: give a dict of public weights, such as "
    "{}, from shares that were known before"
)


@dataclass(frozen=True)
class ClassWeighted(Loss):
    r"""A loss times a public weight that depends on the label.

    With weights :math:`v_y > 0` the loss of a record is :math:`v_y\,\ell(z, y)`.

    *Sensitivity.* A weight depends on its own record only, and is at most
    :math:`V = \max(v_{-1}, v_1)`. So the derivative, the second derivative and the Lipschitz
    constant of the latter are at most V times the bounds of the loss; every sensitivity is computed
    from these constants. If G bounds the gradient of a record, adding or removing a record changes
    the sum of gradients by at most VG, and replacing one, also by one of the other class, by 2VG.

    *Curvature vanishes at the maximal slope* if it does so for the unweighted loss. Let G and M
    bound the derivatives of the latter, and a record of weight v have slope :math:`v q G`, that is,
    the share :math:`p = vq/V \le q` of the new bound VG. Its curvature is at most
    :math:`4 v M q (1 - q) = 4 V M p (1 - q) \le 4 (VM) p (1 - p)`.
    """

    loss: Loss  # for labels -1 and +1
    negative: float  # weight of label -1
    positive: float  # weight of label +1
    classification = True

    @property
    def _most(self) -> float:
        return max(self.negative, self.positive)

    @property
    def convex(self) -> bool:  # type: ignore[override]
        """Whether the unweighted loss is convex."""
        return self.loss.convex

    @property
    def lipschitz(self) -> float:  # type: ignore[override]
        """Bound on the derivative, for the label with the larger weight."""
        return self._most * float(self.loss.lipschitz)

    @property
    def smoothness(self) -> float:  # type: ignore[override]
        """Bound on the second derivative, for the label with the larger weight."""
        return self._most * float(self.loss.smoothness)

    @property
    def hessian_lipschitz(self) -> float:  # type: ignore[override]
        """Lipschitz constant of the second derivative, for the label with the larger weight."""
        return self._most * float(self.loss.hessian_lipschitz)

    @property
    def curvature_vanishes_at_max_slope(self) -> bool:  # type: ignore[override]
        """Whether the unweighted loss has this property; see Notes."""
        return self.loss.curvature_vanishes_at_max_slope

    @property
    def lowest(self) -> float:  # type: ignore[override]
        """Lower bound on the loss, for the label for which it is lower."""
        return min(self.negative * self.loss.lowest, self.positive * self.loss.lowest)

    def _weight(self, y: Any) -> Any:
        xp = array_namespace(y)
        positive, negative = (
            xp.full_like(y, v, dtype=xp.float64) for v in (self.positive, self.negative)
        )
        return xp.where(y > 0, positive, negative)

    def value(self, z: Any, y: Any) -> Any:
        """Return the weighted loss, the shape of ``z`` broadcast with ``y``."""
        return self._weight(y) * self.loss.value(z, y)

    def derivative(self, z: Any, y: Any) -> Any:
        """Return the weighted derivative in ``z``."""
        return self._weight(y) * self.loss.derivative(z, y)

    def second_derivative(self, z: Any, y: Any) -> Any:
        """Return the weighted second derivative in ``z``."""
        return self._weight(y) * self.loss.second_derivative(z, y)


def weights_of(class_weight: Any, classes: np.ndarray) -> list[float]:
    """Return the validated public weight of every class, 1 for those not named."""
    if class_weight is None:
        return [1.0] * len(classes)
    names = classes.tolist()
    if isinstance(class_weight, str) and class_weight == "balanced":
        raise ValueError(_BALANCED.format({names[0]: 5.0}))
    if not isinstance(class_weight, Mapping):
        raise TypeError(
            f"class_weight must be None or a dict of public weights by class, got {class_weight!r}"
        )
    unknown = [each for each in class_weight if each not in names]
    if unknown:
        raise ValueError(f"class_weight names {unknown[0]!r}, which is not among {names!r}")
    return [
        check_positive(f"class_weight[{name!r}]", class_weight.get(name, 1.0)) for name in names
    ]
