"""Exceptions of this package; invalid arguments raise built-in exceptions."""

from __future__ import annotations

from typing import Any

__all__ = ["CertificateNotFound", "IncompatibleAccounting", "PrivacyBudgetExceeded"]


class PrivacyBudgetExceeded(RuntimeError):
    """The privacy filter refused a release.

    The refused query released nothing; earlier releases remain covered by the budget.

    Attributes
    ----------
    partial : object or None
        The :class:`dpanalysis.Result` up to the refusal, if a run raised.

    Examples
    --------
    >>> from dpanalysis import Budget, PrivacyBudgetExceeded, privacy
    >>> guard = privacy.Filter(Budget(epsilon=1.0))
    >>> try:
    ...     guard.spend(privacy.events.Pure(2.0))
    ... except PrivacyBudgetExceeded:
    ...     print("refused")
    refused
    """

    def __init__(self, message: str, partial: Any = None) -> None:
        super().__init__(message)
        self.partial = partial


class CertificateNotFound(RuntimeError):
    """No convergence certificate exists (or none could be verified) for the arguments.

    Examples
    --------
    >>> from dpanalysis import CertificateNotFound, theory
    >>> try:
    ...     theory.heavy_ball_certificate(step_size=1.0, momentum=0.8, mu=0.5, L=1.0)
    ... except CertificateNotFound:
    ...     print("none")
    none
    """


class IncompatibleAccounting(ValueError):
    """Sampling scheme, neighbouring relation and accountant are incompatible.

    Examples
    --------
    >>> from dpanalysis import IncompatibleAccounting, Poisson, privacy
    >>> event = privacy.events.Sampled(Poisson(0.1), [privacy.events.Pure(1.0)])
    >>> try:
    ...     privacy.epsilon([event], 0.0, "replace_one")
    ... except IncompatibleAccounting:
    ...     print("Poisson goes with add_or_remove_one")
    Poisson goes with add_or_remove_one
    """
