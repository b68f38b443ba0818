"""PyTorch modules as problems: sums of clipped per-sample gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..._validation import check_int, warn_caller
from ...kernels.array_api import each_replicate
from ...privacy.accounting.relations import ADD_OR_REMOVE_ONE
from ...privacy.facts import PublicFacts
from ...regularizers import Regularizer
from ..empirical import NonconvexRisk, check_regularizer, growth_of_rows
from ..networks.softmax import CrossEntropy
from ..row_bound import RowBound, as_bounds, implied_radius
from .growth import Chain
from .layers import module_rounding
from .network import LOSSES, Inputs, ModuleNetwork, kernel_settings, same_kernels
from .per_sample import ChunkGradients
from .probe import (
    check_batch,
    check_inputs,
    check_loss,
    choose_gradient_mode,
    chunk_lengths,
    random_parameters,
    refuse_by_name,
    refuse_inference,
    same_at_other_places,
    same_gradients,
)
from .records import as_labels, as_records, filled
from .views import Augmentation

# Memory of a chunk's arrays: on the host they stay in cache, and below the size that the C library
# returns to the system after every call.
_CHUNK_BYTES = {"cpu": 3 << 23, "cuda": 1 << 29}
_MOST_SAMPLES = {"cpu": 512, "cuda": 4096}


class Module(NonconvexRisk):
    r"""Mean loss of a PyTorch module, plus a public penalty.

    Any :class:`torch.nn.Module` that does not mix samples: the loss of a sample is a function of
    that sample and the parameters. The parameters with ``requires_grad`` form one vector of d
    entries, in the order of ``named_parameters()``; the others, frozen by
    ``requires_grad_(False)``, and the buffers stay unchanged and must be public. The module is
    copied and runs in ``eval()`` mode.

    To train the head of a pretrained network, freeze the rest and put it in ``eval()`` mode: batch
    normalization then uses its running statistics, and dropout is inactive. In ``train()`` mode
    both are refused, also with frozen parameters. Layers before the first trained parameter
    take part only in the forward pass.

    Per-sample gradients are computed layer by layer, from one forward and backward pass over a
    chunk of samples. For Linear, Conv1d to Conv3d, Embedding, GroupNorm and LayerNorm the norms
    cost little beside that pass, for LSTM, GRU and RNN about as much as the pass. A layer of any
    other kind (MultiheadAttention, a user-defined one) runs once more, by ``torch.func.vmap``, and
    the gradients in its own parameters are materialized; so a parameter held by the module itself
    takes a second pass through the whole module. Where that fails, ``vmap`` materializes
    everything, or samples are processed one by one. A few random samples determine which way gives
    the right gradients. Memory is that of a chunk, whatever the batch.

    A :class:`torch.nn.Sequential` of PyTorch's own layers, with a loss given by name, processes a
    chunk at once. A module with its own ``forward``, or any other loss, gets each sample as a batch
    of one, by ``vmap``; that costs some milliseconds per chunk. Where ``vmap`` fails (``forward``
    branches on values, or fills an array row by row), samples are processed one by one, slowly.

    Nothing public bounds a gradient, so ``gradient_bound`` and ``L`` are inf, and a private run
    needs a clipping rule. Every rule, every sampling scheme and every method that uses gradients
    or losses along a line is supported; replicates run one after the other.

    Parameters
    ----------
    module : torch.nn.Module
        Maps (B, ...), or several of them, to (B, K) or to the input of ``loss``.
    X : array of shape (n, ...), tuple of such arrays, or torch.utils.data.Dataset
        Tensor or array; a tuple of them for a module whose ``forward`` takes several inputs, in
        that order, of shape (n,) for one number per sample; or a map-style Dataset of pairs (x,
        y), or of (x1, x2, ..., y), see ``in_memory``. Real numbers are converted to the dtype of
        the parameters; integers, such as tokens, stay integers. Arrays are not copied if possible.
    y : array of shape (n, ...), optional
        Labels 0..K-1, or targets. Copied. Omitted for a Dataset.
    loss : {"cross_entropy", "mse"} or callable
        ``"mse"`` is the mean over the outputs of a sample. A callable gets ``(outputs, y)`` of B
        samples and returns their B losses, so losses of PyTorch need ``reduction="none"``;
        constants in it must be public.
    regularizer : Regularizer, optional
        From :mod:`dpanalysis.regularizers`; applies to all parameters.
    augment : callable, optional
        Public function ``(sample, generator)`` that returns a view of one sample, of the same
        shape and dtype, drawn from the :class:`torch.Generator` on the host. With several inputs,
        sample and view are tuples. Losses and gradients are then those of the views;
        :meth:`accuracy` is that of the samples. Not with ``row_bound``.
    in_memory : bool, default=True
        Whether a Dataset is read once, into memory: a transform that draws random numbers then
        draws them once for all iterations, see ``augment``. If False, for data that do not fit, all
        records are read once to be checked, and again whenever a batch contains them; a record
        must be the same each time.
    row_bound : RowBound or sequence of RowBound, optional
        Public bounds on the norm of all entries of a sample; larger samples are scaled down. By
        themselves they do not bound gradients, but :meth:`weak_growth` needs one.
    chunk : int, optional
        Number of samples to process at a time; chosen by default to keep memory small.
    device : optional
        PyTorch device, to which the data are moved; by default that of the parameters.
    size : int, optional
        As for :class:`~dpanalysis.ERM`.

    Attributes
    ----------
    n, d, size : int
        As of :class:`~dpanalysis.ERM`.
    frozen : int
        Number of entries in the frozen parameters; ``d`` counts the others.
    chunk, device
        As given or chosen.

    Raises
    ------
    ValueError
        If a layer of PyTorch, in its current mode, mixes samples or draws random numbers (batch
        normalization, dropout: it is named), every parameter is frozen, the parameters are float16,
        the loss of a random sample depends on the other samples of its batch or changes from call
        to call, the data are not finite, a label has no output, or ``augment`` changes the shape of
        a sample, returns numbers that are not finite, or draws from anything but its generator.
    TypeError
        If the module returns no tensor for a loss given by name.

    Notes
    -----
    *What is proved.* Let :math:`g_i` be the gradient computed for record i, in the dtype of the
    module, and :math:`c_i` its weight. Whatever the precision of the module, even TF32 or less,
    :math:`g_i` is some vector of numbers. From there on all arithmetic is in double: the norm of
    :math:`g_i`, the weight, the product and the sum. So the term's norm is at most
    :math:`(1 + \gamma)C`, and the sum errs by at most ``rounding`` times C, in whatever order a
    device adds (:func:`~dpanalysis.problems.modules.layers.module_rounding`). A record whose loss,
    norm or weight is not finite has weight 0, and its numbers are replaced by zeros. So the charged
    sensitivity holds **if** the other records' :math:`g_i` do not change when one record is
    replaced, added or removed.

    *When they do not change.* First, no sample may affect another. PyTorch layers whose exact class
    is known to process each sample independently, without hooks, process a chunk at once. Any other
    module computes a sample as a batch of one: under ``vmap``, which has no operation that mixes
    samples and raises on branches and on writing, or in a separate call; an LSTM, GRU or RNN in it
    is also known, and processes the sequences of a chunk at once. So a layer with room for only a
    few samples of a batch, a loss that uses other samples' outputs, or anything that depends on the
    length of the batch, sees no other record, not even at values that no check tries. And before
    each call everything reachable from the module and the loss is restored to its state when the
    problem was built: attributes, buffers, frozen parameters, enclosed variables. A module that
    counts its calls starts from the same count each time.

    Second, the kernels must give the same bits. All chunks have one length, padded with zeros,
    whatever the batch; the last one may be shorter, down to an eighth, where random samples have
    the same bits at all of these lengths. Algorithms are not selected by timing, cuDNN's
    deterministic ones are used, and ``torch.autocast`` has an effect in ``forward``, but not around
    a run. So the same kernels run, and where a record is **replaced** every other one keeps its
    position in its chunk. :meth:`check_private` tests that a kernel does not look at another
    sample, at every position and to the last bit, before every private run spends anything. Where a
    record is **added or removed**, those behind it move by one position, and the length of the last
    chunk may change. With ``chunk=1`` there is only one position, and the proof is complete. With
    larger chunks it relies on the kernels giving a sample the same bits at every position and in
    every length, which no library guarantees: :meth:`keeps_bits` tests it. If they do not, the
    terms of the others change by the rounding of their gradients, some 1e-7 of C each in single
    precision; where a relu unit is 0 up to rounding, by more: for crafted records, by as much as
    all of them. Then :meth:`facts` raises for this relation, or warns on a device.

    *Augmentation.* A view is a function of its record and of the parameters w alone, since its
    generator is seeded by the bits of both, so a sum of clipped gradients of views has the
    sensitivity of a sum over samples. Each w, which a private run has released, draws new views; at
    one w a sample has one view, in its gradient and in all losses along a line from there. So a run
    is reproducible from its ``rng``; on a machine that rounds differently, other views are drawn.

    *Not covered.* The running time; an error that a record causes (a token without a row in the
    table; random samples are tried, yours are not); records of a Dataset that depend on other
    records, or with ``in_memory=False`` on when they are read; state that is neither in the module
    nor in the loss or augmentation, or cannot be copied: globals, class attributes, variables that
    methods of a class enclose, files, a counter in compiled code; memory that is read before it is
    written (``torch.empty``), and the text of a tensor (``str(x)``), which under ``vmap`` shows a
    whole chunk. User-defined ``vmap`` rules of operations are trusted.

    References
    ----------
    Ghost norms: I. Goodfellow, *Efficient per-example gradient computations*, 2015; Li et al.,
    *Large language models can be strong differentially private learners*, 2022.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> import dpanalysis as dpa
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 1, 6, 6)).astype(np.float32)
    >>> y = (X.mean(axis=(1, 2, 3)) > 0).astype(int)
    >>> module = torch.nn.Sequential(
    ...     torch.nn.Conv2d(1, 4, 3), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(64, 2)
    ... )
    >>> problem = dpa.problems.Module(module, X, y)
    >>> rule = dpa.clipping.PerSampleAdaptive(r=0.1, clip_norm=0.5)
    >>> method = dpa.methods.SGD(1.0, 60, dpa.Poisson(0.2), rule, momentum=0.9)
    >>> budget = dpa.Budget(4.0, delta=1e-4, relation="add_or_remove_one")
    >>> result = dpa.minimize(problem, method, budget, rng=0, every=60)
    >>> bool(result.epsilon() <= 4.0), bool(problem.accuracy(result.w)[0] > 0.8)
    (True, True)
    >>> trained = problem.module(result.w[0])     # a torch.nn.Module again
    """

    def __init__(
        self,
        module: nn.Module,
        X: Any,
        y: Any = None,
        loss: str | Callable[[Tensor, Tensor], Tensor] = "cross_entropy",
        regularizer: Regularizer | None = None,
        *,
        augment: Callable[[Any, torch.Generator], Any] | None = None,
        in_memory: bool = True,
        row_bound: RowBound | Sequence[RowBound] | None = None,
        chunk: int | None = None,
        device: Any = None,
        size: int | None = None,
    ) -> None:
        if not isinstance(module, nn.Module):
            raise TypeError(f"module must be a torch.nn.Module, got {module!r}")
        if isinstance(module, torch.jit.ScriptModule):
            raise TypeError("module must be the torch.nn.Module that was scripted, got TorchScript")
        refuse_inference()
        check_loss(loss)
        check_regularizer(regularizer)
        refuse_by_name(module)
        self._augment = None if augment is None else Augmentation(augment)
        parameters = list(module.parameters())
        trained = [each for each in parameters if each.requires_grad]
        if not trained:
            got = "all of them frozen by requires_grad_(False)" if parameters else "none"
            raise ValueError(f"module must have a parameter with requires_grad=True, got {got}")
        if any(each.is_complex() for each in trained):
            raise ValueError(
                "module must hold real parameters, got complex ones: train torch.view_as_real(...) "
                "of them, or freeze them by requires_grad_(False)"
            )
        if torch.finfo(trained[0].dtype).max < 1e30:  # no iterate would be below largest_iterate
            raise ValueError(
                f"module must hold parameters of a wide range, got {trained[0].dtype}, in which "
                "products of layers overflow: call float() or bfloat16() on it"
            )
        self.device = trained[0].device if device is None else torch.device(device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise ValueError(f"device must be there, got {device!r}: PyTorch finds no CUDA device")
        self.regularizer, self.loss = regularizer, loss
        self._on_host = False
        self.row_bounds = as_bounds(row_bound)
        if self._augment is not None and self.row_bounds:
            raise ValueError("row_bound must be left out beside augment: a view may lie outside it")
        self._records, y, self._width_read = as_records(
            X, y, in_memory, trained[0].dtype, self.device, self.row_bounds
        )
        self.n, like = len(self._records), self._records.first
        self._y = as_labels(y, loss == "cross_entropy", self.n, self.device)
        self._set_size(size)
        check_inputs(module, len(like))
        own = loss if callable(loss) else LOSSES[loss]
        try:
            self._original = copy.deepcopy(module)
        except Exception as error:  # whatever an attribute raises
            raise ValueError(f"module must be one that copy.deepcopy copies: {error}") from error
        self._network = ModuleNetwork(module, own, trained[0].dtype, self.device)
        self.d = self._network.size
        self.frozen = sum(each.numel() for each in parameters) - self.d
        self._start = self._network.vector.to("cpu", torch.float64, copy=True).numpy()
        with self._at_random():
            entries, self._steps = choose_gradient_mode(self._network, like, self._y)
            self._check_classes()
            self.chunk = self._chunk(entries) if chunk is None else check_int("chunk", chunk, low=1)
            check_batch(self._network, like, self._y, self.chunk)
        self._chunk_lengths = self._lengths()
        if self._augment is not None:
            self._augment.check(like, self._iterate("w", self._start))
        self._chain: Chain | None = None
        self._found: dict[Any, bool] = {}  # about kernels, by PyTorch's settings

    def __getstate__(self) -> dict[str, Any]:
        # What was found about the kernels of one machine need not hold on another. What is computed
        # with is copied before another thread computes with it.
        state = {**vars(self), "_found": {}, "_chain": None}
        with self._network.lock:
            return {**state, **copy.deepcopy({k: state[k] for k in ("_network", "_augment")})}

    def _check_classes(self) -> None:
        """Raise if a label has no output: failing mid-run would leak that record."""
        if self.loss != "cross_entropy":
            return
        outputs = self._network.outputs(
            tuple(torch.zeros_like(each[:1]) for each in self._records.first)
        )
        classes, largest = int(outputs.shape[1]), int(self._y.max())
        if outputs.ndim != 2 or largest >= classes:
            raise ValueError(
                f"module must give one output a class, for y holds the label {largest}, got "
                f"outputs of shape {tuple(outputs.shape)} for one sample"
            )

    def _chunk(self, entries: int) -> int:
        """Return the number of samples to process at a time."""
        kind = "cuda" if self.device.type == "cuda" else "cpu"
        fits = _CHUNK_BYTES[kind] // (8 * max(1, entries))
        power = 1 << max(0, fits.bit_length() - 1)  # so that it divides evenly
        return min(_MOST_SAMPLES[kind], power)

    def __repr__(self) -> str:
        kind = type(self._network.module).__name__
        count = f"n={self.n}" if self._size is None else f"size={self._size}"  # n is not public
        frozen = f", frozen={self.frozen}" if self.frozen else ""
        augment = "" if self._augment is None else f", augment={self._augment.name}"
        return (
            f"Module({kind}, {count}, d={self.d}{frozen}, loss={self.loss!r}, "
            f"regularizer={self.regularizer!r}{augment}, chunk={self.chunk}, "
            f"device={str(self.device)!r})"
        )

    # Public constants

    @property
    def rounding(self) -> float:  # type: ignore[override]
        """Public bound on the rounding error of a sum, in units of the bound on one sample."""
        return module_rounding(self.max_records, self.d, self.chunk, self._steps)

    @property
    def largest_iterate(self) -> float:  # type: ignore[override]
        """Size above which weights count as diverged: the product of two layers may overflow."""
        return float((1e-20 * torch.finfo(self._network.vector.dtype).max) ** 0.5)

    def weak_growth(self, w: Any) -> tuple[Any, float]:
        """Return ``(beta1, beta2)`` of the weak growth condition at these parameters; beta2 is 0.

        Supports a Sequential of Linear, Conv1d, Conv2d, pooling, ReLU, Tanh and Flatten, with a
        loss given by name and samples within a public row bound; otherwise a ValueError names what
        is missing. The proof is in :class:`~dpanalysis.problems.modules.growth.Chain`; the spectral
        norms are upper bounds (:func:`~dpanalysis.theory.spectral_bound`).
        """
        radius = implied_radius(self.row_bounds, 2, self._records.first[0][0].numel())
        growth_of_rows(CrossEntropy(), radius)
        if self._chain is None:
            self._chain = Chain(self._network, self._records.first[0][:1], self.loss)
        iterate = self._iterate("w", w)
        found = []
        for each in iterate if iterate.ndim == 2 else iterate[None]:
            with self._network.at(each):
                found.append(self._chain.beta1(radius))
        return np.array(found) if iterate.ndim == 2 else found[0], 0.0

    def initial(self, rng: Any = None) -> np.ndarray:
        """Return the module's original parameters, shape ``(d,)``; nothing is random."""
        return self._start.copy()

    def vector(self, module: nn.Module) -> np.ndarray:
        """Return the parameters of another module of the same architecture as one vector ``(d,)``.

        Use ``w0=problem.vector(other)`` to start from other parameters.
        """
        parts, slices = dict(module.named_parameters()), self._network.slices
        own = dict(self._original.named_parameters())
        for name in slices:
            if name not in parts or parts[name].shape != own[name].shape:
                raise ValueError(f"module must have a parameter {name} of the same shape as before")
        return np.concatenate(
            [parts[name].detach().to("cpu", torch.float64).numpy().ravel() for name in slices]
        )

    def module(self, w: Any) -> nn.Module:
        """Return an independent copy of the module with the parameters ``w`` (d,)."""
        iterate = self._point("w", w)
        made = copy.deepcopy(self._original)
        with torch.no_grad():
            for name, parameter in made.named_parameters():
                if name in self._network.slices:
                    piece = iterate[self._network.slices[name]]
                    parameter.copy_(piece.view(parameter.shape))
        return made

    # Sums over samples

    def check_private(self) -> None:
        """Raise ValueError unless random samples are processed independently, to the last bit.

        The gradient of a sample must not change when the other samples of its chunk do, or from one
        call to the next; nor must its loss where the module gets a whole chunk. Also checks as
        :meth:`EmpiricalRisk.check_private`.
        """
        super().check_private()
        refuse_inference()
        if not self._finds("samplewise", lambda: self._compare(same_gradients)):
            raise ValueError(
                "module must keep its samples apart: the gradient of a sample changes with the "
                "samples beside it, or from one call to the next"
            )

    def facts(self, relation: str) -> PublicFacts:
        """Return the public facts.

        Under ``"add_or_remove_one"``, raises ValueError unless :meth:`keeps_bits`: records behind
        the one that is added move, and their terms would change. On a device it warns instead.
        """
        if relation == ADD_OR_REMOVE_ONE and not self.keeps_bits():
            text = (
                "module must give a sample the same gradient, to the last bit, at every position "
                "of a chunk, since a record that is added or removed moves those behind it; on "
                "this machine it does not (keeps_bits()). Give chunk=1, or relation='replace_one'"
            )
            if self.device.type == "cpu":
                raise ValueError(text)
            warn_caller(f"the guarantee is incomplete: {text}")
        return super().facts(relation)

    def keeps_bits(self) -> bool:
        """Return whether samples have the same gradients at other positions of a chunk.

        Compares random samples to the last bit, at random parameters near the original ones. If
        False, adding or removing a record changes the others' terms by their rounding; see the
        class notes.
        """

        def keeps() -> bool:
            same = self._compare(same_at_other_places)
            return same and set(self._chunk_lengths) <= set(self._lengths())  # at other settings

        return self.chunk == 1 or self._finds("bits", keeps)

    def _finds(self, what: str, check: Callable[[], bool]) -> bool:
        """Return the result of a check, made once for all settings of PyTorch."""
        key = what, *kernel_settings()
        if key not in self._found:
            self._found[key] = check()
        return self._found[key]

    @property
    def _kernels(self) -> str:
        """Return what the last bits of a sum depend on beside the module, for a checkpoint."""
        own = torch.__version__, str(self.device), self._network.vector.dtype, self.chunk
        return repr((*own, *kernel_settings()))

    def _lengths(self) -> tuple[int, ...]:
        with self._at_random():
            return chunk_lengths(self._network, self._records.first, self._y, self.chunk)

    def _at_random(self) -> Any:
        return self._network.at(random_parameters(self._start, self._network.slices.values()))

    def _compare(self, same: Callable[..., bool]) -> bool:
        with self._at_random():
            return all(
                same(self._network, self._records.first, self._y, each)
                for each in self._chunk_lengths
            )

    def _chunks(self, w: Tensor, rows: Tensor | None) -> Iterator[tuple[Inputs, Tensor, Any, int]]:
        """Yield ``(X, y, chosen, count)``: chunks of one length, the last padded with zeros."""
        # The last is shorter if that gives the same bits, see :func:`.probe.chunk_lengths`. With
        # augmentation, X are the views at ``w``.
        total = self.n if rows is None else len(rows)
        for lo in range(0, total, self.chunk):
            hi = min(total, lo + self.chunk)
            length = next(each for each in self._chunk_lengths if each >= hi - lo)
            chosen: Any = slice(lo, hi) if rows is None else rows[lo:hi]
            X = self._records.chunk(chosen, length)
            if self._augment is not None:
                X = self._augment.views(X, hi - lo, w)
            yield X, filled(self._y, chosen, length), chosen, hi - lo

    def _evaluate(
        self, W: Any, rows: Any, clipping: Any, weights: Any, value: bool, gradient: bool
    ) -> tuple[Any, Any, Any]:
        if isinstance(rows, Sequence):
            return each_replicate(self._evaluate, W, rows, clipping, weights, value, gradient)
        found = [self._at(w, rows, clipping, weights, value, gradient) for w in W]
        if len(found) == 1:  # views: every operation on a device costs
            values, gradients, clipped = found[0]
            return values[None], gradients[None], clipped[None]
        values, gradients, clipped = (torch.stack(column) for column in zip(*found))
        return values, gradients, clipped

    def _at(
        self, w: Tensor, rows: Any, clipping: Any, weights: Any, value: bool, gradient: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sums at one iterate: losses (), gradients (d,), clipped ()."""
        network = self._network
        losses_of: list[Tensor] = []
        total = out = self._zeros(self.d * gradient)
        cuts: list[Tensor] = []
        with network.at(w), same_kernels(network):
            for X, y, chosen, count in self._chunks(w, rows):
                times = None if weights is None else weights[chosen]
                if gradient:
                    losses, placed = network.sample_gradients(X, y)
                    together = ChunkGradients(placed, network.vector)
                    cuts.append(together.write_clipped(out, losses, count, clipping, times))
                    if out is total:  # the first chunk; the others are added to it
                        out = torch.empty_like(total)
                    else:
                        total += out
                else:
                    losses = network.losses(X, y)
                if value:
                    losses = losses[:count]
                    losses_of.append((losses if times is None else losses * times).sum())
        return _added(losses_of, self._zeros()), total, _added(cuts, self._zeros().long())

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.float64, device=self.device)

    def sample_gradients(self, w: Any, rows: Any) -> np.ndarray:
        """Return the per-sample gradients at ``w`` of shape (d,), as (len(rows), d).

        Private, and without noise: for inspecting public data only.
        """
        iterate = self._iterate("w", w)
        found = []
        with self._network.at(iterate), same_kernels(self._network):
            for X, y, _, count in self._chunks(iterate, self._rows(rows, 1)):
                gradients = torch.zeros(count, self.d, dtype=torch.float64, device=self.device)
                for where, part in self._network.sample_gradients(X, y)[1]:
                    gradients[:, where] = part.materialize()[:count]
                found.append(gradients)
        return self._to_caller(torch.cat(found), w)

    def line_losses(
        self, w: np.ndarray, direction: np.ndarray, rows: Any = None
    ) -> Callable[[float], np.ndarray]:
        """Return the function t -> losses (m,) of the samples ``rows`` at ``w - t direction``.

        With augmentation, the losses are those of their views at ``w``.
        """
        start, step = self._point("w", w), self._point("direction", direction)
        chosen = None if rows is None else self._rows(rows, 1)

        def losses(t: float) -> Any:
            with self._network.at(start - t * step), same_kernels(self._network):
                parts = [
                    self._network.losses(X, y)[:count]
                    for X, y, _, count in self._chunks(start, chosen)
                ]
            return self._to_caller(torch.cat(parts) if parts else start[:0], w)

        return losses

    def accuracy(self, w: Any, X: Any = None, y: Any = None) -> Any:
        """Fraction of labels whose output is the largest (the first if tied).

        The arguments are those of :meth:`ERM.accuracy <dpanalysis.ERM.accuracy>`.
        """
        if self.loss != "cross_entropy":
            raise ValueError(f"accuracy needs loss='cross_entropy', got {self.loss!r}")
        if X is None and y is not None:
            raise ValueError("X and y must be given together")
        records, labels = self._records, self._y
        if X is not None:
            dtype = self._network.vector.dtype
            records, y, _ = as_records(X, y, True, dtype, self.device, self.row_bounds)
            given, before = len(records.first), len(self._records.first)
            if given != before:
                raise ValueError(f"X must have {before} inputs as before, got {given}")
            labels = as_labels(y, True, len(records), self.device)
        iterate = self._iterate("w", w)
        fractions = []
        for each in iterate if iterate.ndim == 2 else iterate[None]:
            ends = ((lo, min(lo + 1024, len(labels))) for lo in range(0, len(labels), 1024))
            parts = (records.chunk(slice(lo, hi), hi - lo) for lo, hi in ends)
            with self._network.at(each):
                guesses = [self._network.outputs(part).argmax(dim=1) for part in parts]
            fractions.append((torch.cat(guesses) == labels).to(torch.float64).mean())
        found = self._to_caller(torch.stack(fractions), w)
        return found if iterate.ndim == 2 else float(found[0])


def _added(numbers: Sequence[Tensor], nothing: Tensor) -> Tensor:
    """Return the sum of numbers, ``nothing`` if there are none."""
    return sum(numbers[1:], numbers[0]) if numbers else nothing
