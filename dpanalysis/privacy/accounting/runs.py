r"""Accounting for DP-SGD runs of any library: noisy sums of clipped gradients, common samplings.

**Lower bounds.** Let every batch be drawn afresh, and let the differing record be the only one with
a gradient, or all others be opposite to it. Then a batch releases one of

.. math:: P = \sum_k p_k N(k s, \sigma^2), \qquad Q = N(0, \sigma^2),

where k is the record's multiplicity in the batch and s the distance by which each occurrence moves
the sum: C where the record is added, 2 C where it replaces an opposite one (Balle, Barthe, Gaboardi
2018). The likelihood ratio rises with the outcome, so cells of outcomes are cells of losses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from decimal import ROUND_CEILING, ROUND_FLOOR
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from ..._validation import check_fraction, check_int, check_number, check_positive
from .accountant import calibrate
from .accountant import epsilon as cost_of
from .curves import PrivacyCurve, privacy_curve
from .epochs import Epoch, bins_lower_epsilon, shuffle_lower_epsilon
from .events import Event, Gaussian, Repeated, Sampled
from .pairs import Array, cell_masses
from .pld import _ROUNDING, lower_epsilon
from .relations import ADD_OR_REMOVE_ONE, REPLACE_ONE, Budget, check_relation, directed
from .sampling import BallsInBins, Poisson, RandomAllocation, WithoutReplacement, WithReplacement
from .with_replacement import copies
from .zcdp import gaussian_lower_epsilon

__all__ = ["SAMPLINGS", "RunEpsilon", "accounting"]

_ADD = "one record added or removed"
_ZERO_OUT = "one record replaced by a null record, n public (zero-out)"
_REPLACE = "one record replaced by any other, n public"


@dataclass(frozen=True)
class RunEpsilon:
    """The epsilon of a run, and the one that the accountant for Poisson sampling would report.

    Attributes
    ----------
    run : str
        Description of the run.
    delta : float
    epsilon : float
        A valid upper bound for the neighbours of ``relation``.
    lower : float or None
        A certified lower bound for them: some data sets lose as much. None if there is none.
    relation : str
        Which data sets are neighbours.
    replace_one : float or None
        An upper bound where one record is replaced by any other; None if none is proved here.
    poisson : float
        Epsilon of Poisson sampling with batches of the same mean size, a record added or removed.
    why : str
        Why ``poisson`` does, or does not, apply.
    noise_multiplier : float
    release : Event
        The event whose cost ``epsilon`` is.
    """

    run: str
    delta: float
    epsilon: float
    lower: float | None
    relation: str
    replace_one: float | None
    poisson: float
    why: str
    noise_multiplier: float
    release: Event

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes but for the event, as numbers and text."""
        names = (each.name for each in fields(self) if each.name != "release")
        return {name: getattr(self, name) for name in names}

    def curve(self) -> PrivacyCurve:
        """Return the trade-off curve of the run, for the neighbours of ``relation``."""
        return privacy_curve(self.release, _accounted(self.relation))

    def __str__(self) -> str:
        low = f", and some data lose {_digits(self.lower, ROUND_FLOOR)}" if self.lower else ""
        lines = [
            f"{self.run}; delta = {self.delta:g}",
            f"epsilon is at most {_digits(self.epsilon)}{low}: {self.relation}",
        ]
        if self.replace_one is not None and self.relation != _REPLACE:
            lines.append(f"epsilon is at most {_digits(self.replace_one)}: {_REPLACE}")
        poisson = _digits(self.poisson)
        lines.append(f"the accountant for Poisson sampling says {poisson}: {self.why}")
        return "\n".join(lines)


def _accounted(relation: str) -> str:
    """Return the accountant's name of a relation in words; a null record is one left out."""
    return REPLACE_ONE if relation == _REPLACE else ADD_OR_REMOVE_ONE


def _digits(value: float, rounding: str = ROUND_CEILING) -> str:
    """Format a number with three digits or two decimals, or with six digits from a million on."""
    if value == 0.0 or not 1e-4 <= value < 1e6:
        return directed(value, 6 if value >= 1e6 else 3, rounding)
    digits = max(3, math.floor(math.log10(value)) + 3)
    return f"{float(directed(value, digits, rounding)):#.{digits}g}"


@dataclass(frozen=True)
class _Run:
    """The checked parameters of a run."""

    sigma: float
    delta: float
    rate: float
    batches: int  # per epoch
    steps: int
    times: int
    n: int | None
    m: int | None

    @property
    def passes(self) -> int:
        """Number of epochs begun, each of which costs as much as a complete one."""
        return -(-self.steps // self.batches)

    @property
    def complete(self) -> int:
        """Number of epochs completed, which a lower bound counts."""
        return self.steps // self.batches

    def lower(self, bound: Callable[..., float]) -> float:
        """Return the lower bound of the complete epochs."""
        return bound(self.sigma, self.batches, self.delta, self.complete) if self.complete else 0.0

    def event(self, shift: float = 1.0) -> Gaussian:
        """Return the release of one batch, in units of the clip norm."""
        return Gaussian(self.sigma, shift)

    def gaussian(self, count: int, shift: float = 1.0) -> Gaussian:
        """Return the release of ``count`` batches that all contain the record."""
        return Gaussian(self.sigma, shift * math.sqrt(count))

    def gaussian_lower(self, count: int) -> float:
        """Return a lower bound on the epsilon of ``count`` batches that all contain the record."""
        return gaussian_lower_epsilon(self.sigma / math.sqrt(count), self.delta)

    def poisson(self) -> Event:
        """Return the release by the accountant for Poisson sampling."""
        return Repeated(Sampled(Poisson(self.rate), [self.event()]), self.steps)


class _Answer(NamedTuple):
    """What a scheme releases, and to whom the bounds on its cost apply."""

    release: Event  # whose cost is the upper bound
    relation: str  # in words
    replaced: Event | None  # the release where one record is replaced by any other
    lower: Callable[[], float | None]
    why: str


def _by_poisson(run: _Run) -> _Answer:
    why = "this is that accountant, and it applies, if the batches were really drawn so."
    return _Answer(run.poisson(), _ADD, None, partial(_lower, run, [run.rate], 1.0), why)


def _lower(run: _Run, chances: ArrayLike, shift: float) -> float:
    return mixture_lower_epsilon(chances, shift / run.sigma, run.delta, run.steps)


def _by_shuffle(run: _Run) -> _Answer:
    why = (
        "it does not apply. A permutation puts every record into exactly one batch of an epoch, "
        "and batches that depend on each other hide a record less than independent ones; nothing "
        "is known to be gained from the permutation that a guarantee could count on."
    )
    both = run.gaussian(run.passes), _ZERO_OUT, run.gaussian(run.passes, 2.0)
    return _Answer(*both, partial(run.lower, shuffle_lower_epsilon), why)


def _by_bins(run: _Run) -> _Answer:
    event = Repeated(Epoch(BallsInBins(run.batches), [run.event()]), run.passes)
    why = (
        "it does not apply as it stands, since a record is in exactly one batch of an epoch; but "
        "every record chooses alone, and what that costs is computed here."
    )
    return _Answer(event, _ADD, None, partial(run.lower, bins_lower_epsilon), why)


def _by_allocation(run: _Run) -> _Answer:
    if run.times == 1:
        return _by_bins(run)
    event = Epoch(RandomAllocation(run.batches, run.times), [run.event()])
    why = (
        f"it does not apply as it stands, since a record is in exactly {run.times} batches of an "
        "epoch; the bound here is that of random blocks of batches, with one of each block."
    )
    return _Answer(Repeated(event, run.passes), _ADD, None, lambda: None, why)


def _by_fixed_size(run: _Run) -> _Answer:
    assert run.m is not None and run.n is not None
    event = Sampled(WithoutReplacement(run.m), [run.event(2.0)], n=run.n)
    release = Repeated(event, run.steps)
    why = (
        "it does not apply. With batches of a fixed size neighbours differ in a record that is "
        "replaced, and a clipped sum then moves by up to twice the clip norm."
    )
    lower = partial(_lower, run, [run.m / run.n], 2.0)
    return _Answer(release, _REPLACE, release, lower, why)


def _with_replacement(run: _Run) -> _Answer:
    assert run.n is not None and run.m is not None
    event = Sampled(WithReplacement(run.m), [run.event(2.0)], n=run.n)
    release = Repeated(event, run.steps)
    why = (
        "it does not apply. A record may be in a batch several times, and one that is replaced "
        "moves the sum by up to twice the clip norm each time."
    )
    return _Answer(release, _REPLACE, release, partial(_lower, run, copies(run.n, run.m), 2.0), why)


def _by_cyclic(run: _Run) -> _Answer:
    why = (
        "it does not apply. The order is known, so that a record is in a batch that everybody "
        "knows, once an epoch; only the noise hides it."
    )
    both = run.gaussian(run.passes), _ZERO_OUT, run.gaussian(run.passes, 2.0)
    return _Answer(*both, partial(run.gaussian_lower, run.passes), why)


def _full(run: _Run) -> _Answer:
    why = "it applies, with a rate of 1: all records are in every batch."
    both = run.gaussian(run.steps), _ADD, run.gaussian(run.steps, 2.0)
    return _Answer(*both, partial(run.gaussian_lower, run.steps), why)


#: Sampling schemes by name: description and function that returns the release.
SAMPLINGS: dict[str, tuple[str, Callable[[_Run], _Answer]]] = {
    "poisson": ("Poisson sampling", _by_poisson),
    "shuffle": ("shuffled batches", _by_shuffle),
    "balls in bins": ("balls in bins", _by_bins),
    "random allocation": ("random allocation", _by_allocation),
    "fixed size": (
        "batches of a fixed size, each drawn afresh without replacement",
        _by_fixed_size,
    ),
    "with replacement": ("batches of a fixed size, drawn with replacement", _with_replacement),
    "cyclic": ("batches in a fixed order", _by_cyclic),
    "full": ("full batches", _full),
}


def accounting(
    noise_multiplier: float | None = None,
    *,
    epsilon: float | None = None,
    sampling: str,
    n: int | None = None,
    batch_size: int | None = None,
    rate: float | None = None,
    batches: int | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    times: int = 1,
    delta: float,
    relation: str = ADD_OR_REMOVE_ONE,
) -> RunEpsilon:
    """Return the privacy cost of a DP-SGD run for the sampling that it actually used.

    For runs of any library that add Gaussian noise to the sum of clipped gradients of a batch.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise on the SUM of clipped gradients, over the clip norm C, in
        [1e-20, 1e100].
    epsilon : float
        In its place: then the smallest noise multiplier is found whose upper bound is at most this.
    sampling : str
        How the batches were drawn:

        - ``"poisson"``: every record is in each batch independently, with probability ``rate``.
        - ``"shuffle"``: the records are permuted anew each epoch, and cut into ``batches``, as by
          most data loaders, for example ``DataLoader(shuffle=True)`` of PyTorch.
        - ``"balls in bins"``: each epoch assigns every record to one of ``batches``, independently.
        - ``"random allocation"``: each epoch assigns every record to ``times`` of them.
        - ``"fixed size"``: each batch is ``batch_size`` of the ``n`` records, drawn afresh.
        - ``"with replacement"``: the same, but a record may be drawn several times.
        - ``"cyclic"``: the same ``batches`` in the same order each epoch; shuffled never or once.
        - ``"full"``: all records in every batch.
    n : int, optional
        Number of records.
    batch_size : int, optional
        Size of a batch, together with ``n``. Give one of ``batch_size``, ``rate``, ``batches``.
        The last batch of an epoch is smaller where it does not divide n. A loader that drops it
        has one batch fewer: give ``batches``.
    rate : float, optional
        For ``"poisson"``: probability that a record is in a batch, in (0, 1]. That of Opacus is
        1/len(loader), above batch_size/n if the loader drops incomplete batches.
    batches : int, optional
        Batches per epoch.
    epochs, steps : int, optional
        Length of the run; give one. An epoch that was begun costs as much as a complete one; of
        Poisson batches, it has 1/rate of them, rounded up.
    times : int, default=1
        For ``"random allocation"``: number of batches of an epoch that contain a given record.
    delta : float
        In (0, 1).
    relation : {"add_or_remove_one", "replace_one"}
        Neighbours for whom the bounds are. By default, one record is added or removed, or, where
        the sampling fixes the number of records, replaced: the result's ``relation`` says which.

    Returns
    -------
    RunEpsilon
        With ``epsilon``, ``lower``, ``relation``, ``replace_one``, ``poisson`` and ``why``; it
        prints as sentences.

    Raises
    ------
    TypeError, ValueError
        If arguments are missing, contradict each other, or do not apply to the sampling; for
        ``relation="replace_one"`` if no bound is proved here.

    Notes
    -----
    The bounds are derived in :mod:`dpanalysis.privacy.accounting.epochs` and
    :mod:`dpanalysis.privacy.accounting.runs`. The lower bound for shuffling requires that an epoch
    uses all records: a loader that drops an incomplete last batch hides the records in it.

    Examples
    --------
    >>> import dpanalysis as dpa
    >>> run = dpa.accounting(1.0, sampling="shuffle", batches=100, epochs=10, delta=1e-5)
    >>> round(run.poisson, 2), round(run.lower, 2), round(run.epsilon, 2)
    (1.83, 9.36, 17.86)
    >>> print(run.relation)
    one record replaced by a null record, n public (zero-out)
    >>> run = dpa.accounting(epsilon=3.0, sampling="poisson", rate=0.01, steps=1000, delta=1e-5)
    >>> round(run.noise_multiplier, 2)
    0.81
    """
    sampling, sizes = _sampling_name(sampling), (n, batch_size, rate, batches)
    if (noise_multiplier is None) == (epsilon is None):
        raise ValueError(
            "give exactly one of noise_multiplier and epsilon, got "
            f"noise_multiplier={noise_multiplier!r} and epsilon={epsilon!r}"
        )
    check_relation(relation)
    delta = check_fraction("delta", delta)
    n = None if n is None else check_int("n", n, low=1)
    times = check_int("times", times, low=1)
    if times > 1 and sampling != "random allocation":
        raise ValueError(f"times belongs to sampling='random allocation', not to {sampling!r}")
    share, each = _sizes(sampling, *sizes)
    if times > each:
        raise ValueError(f"times must be at most the batches of an epoch, {each}, got {times}")
    share = share * times
    length = _length(epochs, steps)
    total = length if steps is not None else length * each
    drawn, describe = SAMPLINGS[sampling]
    unit = _Run(1.0, delta, share, each, total, times, n, batch_size)

    def answer(sigma: float) -> _Answer:
        found = describe(replace(unit, sigma=sigma))
        if relation == ADD_OR_REMOVE_ONE or found.relation == _REPLACE:
            return found
        if found.replaced is None:
            raise ValueError(
                f"no bound is proved here for sampling={sampling!r} with relation='replace_one'"
            )
        return found._replace(release=found.replaced, relation=_REPLACE)

    neighbours = _accounted(answer(1.0).relation)
    if epsilon is None:
        # Beyond these, squares of its reciprocal overflow, or vanish.
        sigma = check_number("noise_multiplier", noise_multiplier, low=1e-20, high=1e100)
    else:
        budget = Budget(check_positive("epsilon", epsilon), delta, neighbours)

        def printed(sigma: float) -> float:  # so that the printed number is the one meant
            return float(directed(sigma, 6))

        least = calibrate(lambda sigma: answer(printed(sigma)).release, budget, (1e-3, 1e9))
        sigma = printed(least)
    run, (release, words_of, replaced, lower, why) = replace(unit, sigma=sigma), answer(sigma)
    if n is not None and delta >= 1.0 / n:
        why += f" Beware: delta is not below 1/n = {1.0 / n:.2g}, which allows one record in clear."
    if steps and n and batch_size and n % batch_size and sampling in ("shuffle", "cyclic"):
        full = n // batch_size
        why += f" Beware: if the loader drops incomplete batches, give batches={full} instead."
    words = [drawn, f"noise multiplier {sigma:g}"]
    if sampling == "poisson":
        words += [f"rate {share:g}", f"{total} steps"]
    elif sampling in ("fixed size", "with replacement"):
        words += [f"{batch_size} of {n} records", f"{total} steps"]
    elif sampling == "full":
        words += [f"{total} steps"]
    else:
        words += [f"{each} batches an epoch", _run_length(run)]
        words += [f"each record in {times} of them"] * (times > 1)
    text = ", ".join(words)
    return RunEpsilon(
        text[0].upper() + text[1:],
        delta,
        cost_of(release, delta, neighbours),
        lower(),
        words_of,
        None if replaced is None else cost_of(replaced, delta, REPLACE_ONE),
        cost_of(run.poisson(), delta, ADD_OR_REMOVE_ONE),
        why,
        sigma,
        release,
    )


def _run_length(run: _Run) -> str:
    """Return the length of a run in epochs if these are complete, else in steps."""
    if run.steps % run.batches:
        return f"{run.steps} steps"
    return f"{run.passes} epoch{'s' * (run.passes > 1)}"


def _sampling_name(sampling: Any) -> str:
    """Return the normalized name of a scheme, however it is spelt; names of classes are too."""
    if not isinstance(sampling, str):
        raise TypeError(
            f"sampling must be words such as 'shuffle', got {sampling!r}; events and schemes of "
            "dpanalysis are accounted by dpanalysis.privacy.epsilon"
        )
    words = re.findall(r"[A-Z]?[^A-Z\s_-]+|[A-Z]+", sampling)  # of names of classes, too
    name = " ".join(words).lower()
    name = "fixed size" if name == "without replacement" else name
    if name not in SAMPLINGS:
        listed = ", ".join(map(repr, SAMPLINGS))
        raise ValueError(
            f"sampling must be one of {listed}, got {sampling!r}: a loader that permutes the "
            "records each epoch is 'shuffle', one that draws each batch afresh 'fixed size'"
        )
    return name


def _sizes(sampling: str, n: Any, batch_size: Any, rate: Any, batches: Any) -> tuple[float, int]:
    """Return the fraction of the records in a batch, and the number of batches per epoch."""
    named = {"batch_size": batch_size, "rate": rate, "batches": batches}
    given = [name for name, value in named.items() if value is not None]
    if sampling == "full":
        if given:
            raise ValueError(f"sampling='full' takes all records: leave out {' and '.join(given)}")
        return 1.0, 1
    allowed = {
        "poisson": "rate, batches, or n and batch_size",
        "fixed size": "n and batch_size",
        "with replacement": "n and batch_size",
        "random allocation": "batches",
    }.get(sampling, "batches, or n and batch_size")
    if len(given) != 1 or given[0] not in allowed:
        got = " and ".join(given) or "none of them"
        raise ValueError(f"sampling={sampling!r} takes exactly one of: {allowed}; got {got}")
    if rate is not None:
        share = check_number("rate", rate, low=0.0, high=1.0, low_open=True)
        return share, math.ceil(1.0 / share * (1.0 - 1e-12))
    if batches is not None:
        count = check_int("batches", batches, low=1)
        if n is not None and count > n:
            raise ValueError(f"batches must be at most n = {n}, got {count}: none may be empty")
        return 1.0 / count, count
    size = check_int("batch_size", batch_size, low=1)
    if n is None:
        raise ValueError(f"batch_size needs n, the number of records, got batch_size={size} alone")
    if size > n:
        raise ValueError(f"batch_size must be at most n = {n}, got {size}")
    count = -(-n // size)
    divided = sampling in ("shuffle", "balls in bins", "cyclic")
    return (1.0 / count if divided else size / n), count


def _length(epochs: Any, steps: Any) -> int:
    """Return whichever of ``epochs`` and ``steps`` is given, checked."""
    if (epochs is None) == (steps is None):
        raise ValueError(
            f"give exactly one of epochs and steps, got epochs={epochs!r} and steps={steps!r}"
        )
    name, value = ("epochs", epochs) if steps is None else ("steps", steps)
    return check_int(name, value, low=1)


def mixture_lower_epsilon(chances: ArrayLike, mu: float, delta: float, steps: int) -> float:
    """Return a lower bound on the epsilon of steps whose pair is a mixture of normal laws.

    The record is in a batch once, twice and so on with the probabilities ``chances``, and otherwise
    not at all. Each occurrence moves the sum by ``mu`` standard deviations of the noise. Outcomes
    are merged into cells, which cannot increase a divergence, and the losses of cells are rounded
    down to a grid. Cells surround the grid points, so that little is rounded: the offset from the
    grid is the same constant for nearly all cells, and is not rounded.
    """
    law = np.asarray(chances, dtype=np.float64)
    shifts = mu * np.arange(1.0, law.size + 1.0)
    likely = shifts[np.flatnonzero(law > 1e-3 * delta / steps)[-1:]]  # others are rounded down
    top = 12.0 + (float(likely[0]) if likely.size else 0.0)
    none = max(0.0, 1.0 - float(law.sum()))
    at = np.linspace(-12.0, top, 20_001)
    losses = special.logsumexp(
        np.append(0.0, shifts)[:, None] * at - 0.5 * np.append(0.0, shifts)[:, None] ** 2,
        axis=0,
        b=np.append(none, law)[:, None],
    )
    laws = _cells(at, law, none, shifts)[0]
    middle = 0.5 * (losses[1:] + losses[:-1])
    variance = float(laws @ (middle - laws @ middle) ** 2)
    width = (20.0 * math.sqrt(steps * variance) + 2.0 * np.ptp(losses)) / 2**19
    first, last = math.ceil(losses[0] / width), math.floor(losses[-1] / width)
    if last - first < 2:
        return 0.0
    ends = np.interp((np.arange(first, last) + 0.5) * width, losses, at)
    with_it, without = _cells(np.concatenate([at[:1], ends, at[-1:]]), law, none, shifts)
    some = with_it > 1e-6 * delta / steps * width
    if not some.any():
        return 0.0
    mass, without = with_it[some], np.maximum(without[some], 1e-290)  # more Q-mass means less loss
    losses = np.log(mass) - np.log(without) - 1e-12  # rounding of the cells

    def rounded(constant: float) -> Array:
        return np.floor((losses - constant) / width)

    off = losses - width * np.round(losses / width)
    tried = np.quantile(off, [0.0, 1e-3, 1e-2, 0.1, 0.3])
    best = max(tried, key=lambda c: float(mass @ (width * rounded(c) + c)))
    cells = rounded(best).astype(np.int64)
    found = lower_epsilon(cells, mass, width, delta, steps, _ROUNDING * (10 + steps))
    return max(0.0, found + steps * float(best)) if found > 0.0 else 0.0


def _cells(at: Array, law: Array, none: float, shifts: Array) -> tuple[Array, Array]:
    """Return the masses of outcome cells under P and Q."""

    def of(shift: float) -> Array:
        return cell_masses(special.ndtr(at - shift), special.ndtr(shift - at))

    without = of(0.0)
    return none * without + sum(p * of(s) for p, s in zip(law, shifts)), without
