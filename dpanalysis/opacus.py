"""Per-sample adaptive and automatic clipping for training with Opacus.

Use :class:`PrivacyEngine` in place of that of Opacus and name the rule; ``make_private``,
``make_private_with_epsilon``, data loaders, accountants and ``BatchMemoryManager`` stay the same::

    from dpanalysis.opacus import PrivacyEngine

    model, optimizer, loader = PrivacyEngine().make_private(
        module=model, optimizer=optimizer, data_loader=loader,
        noise_multiplier=1.0, max_grad_norm=0.1, clipping="per_sample_adaptive", r=0.1,
    )

The weights are those of :mod:`dpanalysis.clipping`: no weighted gradient is longer than
``max_grad_norm``, so the noise and the accounting of Opacus hold unchanged. The proved bounds on
rounding errors (see :class:`dpanalysis.problems.Module`) do not cover the sums of Opacus. Nor is it
checked that the samples of a module do not mix: Opacus refuses batch normalization by name, and
trusts every other module. The sums are clipped to the ``max_grad_norm`` at the time when their
first sample was added; if it has changed when the noise is drawn, the step is refused.
"""

from __future__ import annotations

from typing import Any

try:
    import opacus as _opacus
    import torch
except ImportError as error:
    raise ImportError(
        "dpanalysis.opacus needs PyTorch and Opacus: "
        "pip install 'dpanalysis-toolkit[torch]' opacus, that is torch==2.13.0 or newer"
    ) from error
from opacus.optimizers import DPOptimizer
from opacus.optimizers.optimizer import _check_processed_flag, _mark_as_processed

from . import clipping as rules

__all__ = ["Automatic", "PerSampleAdaptive", "PrivacyEngine"]

_SHORTEST = 1e-70  # shorter gradients count as zero: their squares may have lost digits


class _Weighted(DPOptimizer):
    """The optimizer of Opacus with the weights of a rule that has a parameter r."""

    _kind: Any

    def __init__(self, optimizer: Any, *, r: float = 0.1, **arguments: Any) -> None:
        self.r = r
        super().__init__(optimizer, **arguments)
        self._kind(r, self.max_grad_norm)  # raises if one is out of range
        self._clipped_to = float(self.max_grad_norm)

    def clip_and_accumulate(self) -> None:
        """Weigh the gradients of the samples by the rule, and add them to ``p.summed_grad``.

        A sample whose gradient is not finite, or too short for its squares, counts as zero. Raises
        RuntimeError if ``max_grad_norm`` has changed since the first samples were added.
        """
        if all(parameter.summed_grad is None for parameter in self.params):
            self._clipped_to = float(self.max_grad_norm)
        self._check_bound()
        samples = [each[..., None].flatten(1) for each in self.grad_samples]
        sizes = [torch.linalg.vector_norm(each.double(), dim=1) for each in samples]
        norms = torch.linalg.vector_norm(torch.stack(sizes, dim=1), dim=1)
        weights = self._kind(self.r, self.max_grad_norm).weight(norms)
        lost = ~torch.isfinite(norms) | (norms < _SHORTEST)
        weights = weights.masked_fill(lost, 0.0)
        for parameter, gradients in zip(self.params, samples):
            _check_processed_flag(parameter.grad_sample)
            kept = gradients.masked_fill(lost[:, None], 0.0).double()  # a weight may be too large
            total = (weights.double() @ kept).to(parameter.dtype).view_as(parameter)
            if parameter.summed_grad is None:
                parameter.summed_grad = total
            else:
                parameter.summed_grad += total
            _mark_as_processed(parameter.grad_sample)

    def add_noise(self) -> None:
        """Add noise scaled to the bound that the sums were clipped to.

        Raises RuntimeError if ``max_grad_norm`` has changed, or a frozen parameter has a gradient
        without noise, or a sum that a later step would add once more.
        """
        self._check_bound()
        self._check_frozen()
        super().add_noise()

    def pre_step(self, closure: Any = None) -> Any:
        """Weigh, add and perturb the gradients; return whether the inner optimizer has to step.

        Without a trained parameter there is nothing to perturb; raises RuntimeError as
        :meth:`add_noise` if the step would use a gradient nevertheless.
        """
        if not self.params:
            self._check_frozen()
        return super().pre_step(closure)

    def _check_frozen(self) -> None:
        trained = set(map(id, self.params))
        for parameter in (each for group in self.param_groups for each in group["params"]):
            if id(parameter) in trained:
                continue
            left = parameter.grad, getattr(parameter, "summed_grad", None)
            if any(each is not None and bool(each.any()) for each in left):
                raise RuntimeError(
                    f"a parameter of shape {tuple(parameter.shape)} was frozen after its gradient "
                    "was computed, and the step would use it without noise, or a later one its "
                    "sum: call zero_grad() after a whole step, and then requires_grad_(False)"
                )

    def _check_bound(self) -> None:
        if self.max_grad_norm != self._clipped_to:
            raise RuntimeError(
                f"max_grad_norm was changed to {self.max_grad_norm!r} after gradients were clipped "
                f"to {self._clipped_to!r}: change it between zero_grad() and the next step"
            )


class PerSampleAdaptive(_Weighted):
    r"""PSAC in Opacus: weights :math:`C/(\|g\| + r/(\|g\| + r))`, with C = ``max_grad_norm``.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Optimizer whose steps use the noisy sums.
    r : float, default=0.1
        Stabilizer r > 0.
    **arguments
        Arguments of ``opacus.optimizers.DPOptimizer``: ``noise_multiplier``, ``max_grad_norm``,
        ``expected_batch_size`` and so on.

    References
    ----------
    Xia et al. (2023), Algorithm 1. The rule: :class:`dpanalysis.clipping.PerSampleAdaptive`.
    """

    _kind = rules.PerSampleAdaptive


class Automatic(_Weighted):
    r"""Auto-S in Opacus: weights :math:`C/(\|g\| + r)`, with C = ``max_grad_norm``.

    Parameters and errors are those of :class:`PerSampleAdaptive`.

    References
    ----------
    Bu et al., *Automatic clipping*. The rule: :class:`dpanalysis.clipping.Automatic`.
    """

    _kind = rules.Automatic


_KINDS = {"per_sample_adaptive": PerSampleAdaptive, "automatic": Automatic}


class PrivacyEngine(_opacus.PrivacyEngine):
    """The engine of Opacus with ``clipping="per_sample_adaptive"`` and ``"automatic"``.

    For these ``make_private`` takes ``r`` and needs gradients of single samples: any
    ``grad_sample_mode`` but the ghost ones, on one machine.
    """

    def _prepare_optimizer(self, *, clipping: str = "flat", **arguments: Any) -> Any:
        if clipping in _KINDS:
            return self._weighted(_KINDS[clipping], clipping, **arguments)
        if "r" in arguments:  # which Opacus would take and leave unused, as every other name
            raise ValueError(f"r belongs to clipping={sorted(_KINDS)}, got clipping={clipping!r}")
        try:
            return super()._prepare_optimizer(clipping=clipping, **arguments)
        except ValueError as error:
            raise ValueError(f"{error} (this engine adds clipping={sorted(_KINDS)})") from error

    def _weighted(
        self,
        kind: type[_Weighted],
        clipping: str,
        optimizer: Any,
        distributed: bool = False,
        noise_generator: Any = None,
        grad_sample_mode: str = "hooks",
        **arguments: Any,
    ) -> Any:
        if distributed or "ghost" in grad_sample_mode:
            raise ValueError(
                f"clipping={clipping!r} needs the gradients of single samples on one machine, got "
                f"grad_sample_mode={grad_sample_mode!r} and distributed={distributed!r}"
            )
        if isinstance(optimizer, DPOptimizer):
            optimizer = optimizer.original_optimizer
        generator = self.secure_rng if self.secure_mode else noise_generator
        return kind(optimizer, generator=generator, secure_mode=self.secure_mode, **arguments)
