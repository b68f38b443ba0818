r"""Record a mechanism's noise on one data set and replay it on a neighbouring one.

:func:`~dpanalysis.audit.verify_privacy` sees outputs only. Here the random source is replaced
(:mod:`.sources`). A few runs on each input, with the same numbers at the same places, show how the
changed record affects a run: what reaches the output without noise, how far each noisy number
shifts relative to its noise, and whether scales, shapes and numbers of draws depend on the data. To
record on a data set and replay on its neighbour is the idea of Re:cord-play (arXiv 2602.17454).

How false alarms are avoided. No finding rests on a single pair of runs, since a threshold, an index
or a rounded number may change by chance. A finding is about what does *not* depend on chance.

*No noise.* A part of the output is the same in every run on the dataset, the same in every run on
the neighbour, and differs between them. In some of these runs all noise is up to 10^9 times as
large as drawn (less if runs grow with it) and coins take their least likely outcomes, in some runs
all on the same side, so that every function of noisy numbers changes. The same criterion applies to
the remainder of a number modulo a step (rounded noise only adds multiples of the step), to types,
digits, shapes, scales and numbers of draws: one that depends on earlier noise, as in an adaptive
method, is no finding. The exception is a coin that matters only by one rare outcome among many,
such as 57 of ``integers(1000)``: all runs may miss it. If rare outcomes cannot be made likely
(orders, subsets, long words that may be hashed), if coins decide how many others are tossed, or if
a loop waits for a usual number, a note says so, and nothing is reported as released without noise.

*The amount of noise.* An output entry that equals :math:`a N + c` for one number N of noise, in
usual and in extreme runs, is released with noise of known law and scale. These entries are
independent, so the log of their likelihood ratio is a sum, and its largest value bounds epsilon
from below: for Laplace noise the sum of shift/scale. If the output equals :math:`a N + c` only in a
range, as under a clamp, the tails beyond it do not count. If coins are tossed, they may be those of
a subsample, which lowers epsilon, so no bound is computed.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from .._validation import check_int, check_number
from .entries import is_repr
from .outcomes import Raised
from .released import CLOSEST, LAWS, Entry, Fit, loss, mirrored, terms, violation
from .replay import (
    FARTHEST,
    MESSAGE,
    MILD,
    RecordedRun,
    Replayer,
    agree,
    close,
    common_step,
    constant_seeds,
    drawn_alike,
    entry_of,
    equal,
    home_of,
    in_words,
    is_rounded,
    off_grid,
    rising_seeds,
    same,
    slack,
    spread,
)
from .sources import intercept
from .tape import COPIED, OUTSIDE, SET
from .verify import Claimed, ParsedClaim, check_inputs, parse_claim

__tracebackhide__ = True  # pytest shows the line that calls this package

_RUNS = 7  # on each input
_PROBES = 1 << 16  # number (seed) of the first run that tries how large noise may be
_EXTREME = 32  # extreme runs on each input, made if there is something to confirm
_TOSSED = 3  # times as many if coins are tossed, several of which may have to fall together
_ALIKE = 12  # fewest extreme runs whose output has its usual shape
_MARKS = {
    SET: "the state of a generator was set: noise that repeats after this is not recognized",
    COPIED: "a generator was copied: noise that copies share is not recognized",
    OUTSIDE: "compiled code drew from a generator, or raw bits were taken: noise made of them",
}
_DIFFERENT, _SHOWN = 5, 64  # fewest distinct numbers that reveal a grid, most entries tested for it
_GRID = 1e-10  # relative error of a grid's step
_FIT = 1e-5  # relative deviation of an output from a N + c that is accepted, float32 included
_REMAINDER = 1e-3  # rounding of a sum of large noise, as a share of the slack
_LARGEST = 1 << 18  # most numbers of noise that are compared with outputs


@dataclass(frozen=True)
class Finding:
    """A mistake in a mechanism, and where it is.

    Attributes
    ----------
    kind : str
        "exact" (data without noise in the output), "seed" (the same, and a source is seeded with a
        constant), "size" (the output's shape depends on the data), "draws" (the number or shape of
        draws does; under a claim only a note if the output's shape does not), "scale" (a scale
        does), "reuse" (the same noise on two answers), "sensitivity" or "epsilon" (larger than
        stated), "law" (no scale of this law satisfies the claim), or "untested" (the mechanism
        never looked at the changed record).
    message : str
    file, line : str, int
        The call that draws the noise, or the mechanism if the finding is about an output.
    """

    kind: str
    message: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}: {self.message}"


@dataclass(frozen=True)
class Quantity:
    """A quantity to which noise was added."""

    law: str
    scale: float  # the smallest scale of its noise
    shift: float  # from the dataset to the neighbour: in L2 for Gaussian noise, else in L1
    released: bool  # whether it is itself an output, rather than used to compute one
    file: str
    line: int

    def __str__(self) -> str:
        kind = "released" if self.released else "used"
        return (
            f"{Path(self.file).name}:{self.line}: {kind} with {self.law} noise of scale "
            f"{self.scale:.4g}, moves by {self.shift:.4g} ({self.shift / self.scale:.4g} scales)"
        )


@dataclass(frozen=True)
class Recording:
    """The result of recording a mechanism on two neighbouring data sets.

    Attributes
    ----------
    name : str
        Name of the mechanism.
    findings : tuple of Finding
    quantities : tuple of Quantity
        One for each call that adds noise to a quantity that could be determined.
    epsilon : float or None
        A lower bound on epsilon at delta = 0 for these two data sets, from the shifts and scales of
        what is released; ``inf`` if the ratio of densities is unbounded, None if nothing is known.
    looked : bool
        Whether anything differed between the two data sets.
    not_followed : tuple of str
        What the recording could not see; findings may be missing there.
    """

    name: str
    findings: tuple[Finding, ...]
    quantities: tuple[Quantity, ...] = ()
    epsilon: float | None = None
    looked: bool = True
    not_followed: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether nothing was found, which does not prove privacy."""
        return not self.findings

    def __str__(self) -> str:
        head = "nothing found" if self.passed else f"{len(self.findings)} found"
        lines = [f"recording of {self.name}: {head}"]
        lines += [f"  [{found.kind}] {found}" for found in self.findings]
        groups: dict[Any, list[Quantity]] = {}
        for each in self.quantities:
            groups.setdefault((each.file, each.line, each.law, each.released), []).append(each)
        for group in groups.values():
            worst = max(group, key=lambda each: each.shift / each.scale)
            times = "" if len(group) == 1 else f"; the largest of {len(group)}"
            lines.append(f"  {worst}{times}")
        if self.epsilon is not None and not (self.passed and math.isinf(self.epsilon)):
            lines.append(f"  epsilon >= {self.epsilon:.4g} at delta = 0 for these neighbours")
        lines += [f"  not followed: {note}" for note in self.not_followed]
        return "\n".join(lines)


def record(
    function: Callable[..., Any],
    dataset: Any,
    neighbour: Any,
    *,
    claim: Claimed | None = None,
    delta: float = 0.0,
    sensitivity: float | None = None,
    rng: int = 0,
    relation: str | None = None,
    vectorized: bool = True,
    seconds: float = 30.0,
) -> Recording:
    """Run a mechanism on two neighbouring data sets with the same noise, and report differences.

    Findings are certain and reproducible, and name the source line. A recording needs a few runs,
    not 100,000, and finds mistakes that outputs hardly show. But it sees only the random numbers
    that Python code draws, see :attr:`Recording.not_followed`. Use it together with
    :func:`~dpanalysis.audit.verify_privacy`, as :func:`~dpanalysis.audit.assert_private` does.

    Parameters
    ----------
    function, vectorized
        A mechanism as for :func:`~dpanalysis.audit.verify_privacy`; called with ``size=1``.
    dataset, neighbour, relation
        The two inputs, as there.
    claim, delta : optional
        As there. With a claim, the amount of noise is compared with it.
    sensitivity : float, optional
        The stated bound on the change of every quantity that gets noise: in L2 for Gaussian and
        spherical noise, else in L1.
    rng : int, default=0
        Seed of the replayed noise.
    seconds : float, default=30
        Time limit: no run starts later, and a run that draws later is aborted, except the first
        four on each input. ``not_followed`` says what was left out.

    Notes
    -----
    Generators that the mechanism creates and retains are reseeded by the operating system after
    each run. Anything else that it retains, such as a key or a cached answer, comes from replayed
    numbers, which anyone who knows ``rng`` can reproduce: never release with a recorded object.

    References
    ----------
    arXiv 2602.17454; Dwork, Roth (2014), Theorem 3.6; Dong, Roth, Su (2022).

    Examples
    --------
    >>> import numpy as np
    >>> from dpanalysis import audit
    >>> def noisy_mean(data, rng, size):
    ...     scale = data.max() / len(data)
    ...     return data.mean() + rng.laplace(0.0, scale, size)
    >>> found = audit.record(noisy_mean, np.array([0.0, 0.5]), np.array([0.0, 1.0]))
    >>> [finding.kind for finding in found.findings]
    ['scale']
    >>> def correct(data, rng, size):
    ...     return np.clip(data, 0.0, 1.0).mean() + rng.laplace(0.0, 1.0 / len(data), size)
    >>> audit.record(correct, np.array([0.0, 0.0]), np.array([0.0, 1.0]), claim=1.0).passed
    True
    """
    asked = None if claim is None else parse_claim(claim, delta)
    seed = check_int("rng", rng)
    if sensitivity is not None:
        sensitivity = check_number("sensitivity", sensitivity, low=0.0)
    seconds = check_number("seconds", seconds, low=0.0)
    known = asked or ParsedClaim("epsilon", 0.0, 0.0)
    check_inputs(function, dataset, neighbour, relation, known, vectorized, "function")
    while True:
        loaded = "torch" in sys.modules
        with intercept(function) as held, np.errstate(all="ignore"):  # infinities are outputs, too
            replayer = Replayer(function, (dataset, neighbour), seed, bool(vectorized), seconds)
            found = _Judge(replayer, claim, asked, sensitivity, held).judge()
        if loaded or "torch" not in sys.modules:
            return found  # otherwise the mechanism imported PyTorch, which was not recorded: again


# Analysis of the runs


@dataclass
class _Judge:
    """Derives the findings of one recording."""

    replayer: Replayer
    claim: Any
    asked: ParsedClaim | None
    sensitivity: float | None
    held: dict[str, tuple[Any, Any]]  # generators seeded before the recording, with their seeds
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def judge(self) -> Recording:
        replayer = self.replayer
        name = getattr(replayer.function, "__name__", type(replayer.function).__name__)
        self.home = home_of(replayer.function)
        runs = replayer.pairs(0, _RUNS)
        assert runs is not None
        self.runs, self.usual = runs, runs[0] + runs[1]
        self.again = replayer.run(0, 0)
        if not equal(self.again, runs[0][0]):
            return self._unrepeatable(name)
        if all(run.others and isinstance(run.others[0], Raised) for run in self.usual):
            raised = f"every run {runs[0][0].others[0]}: {replayer.error}; it is called as "
            raised += "mechanism(dataset, rng, size), without size if vectorized=False"
            self._find("untested", f"nothing was compared, for {raised}", None)
            return Recording(name, tuple(self.findings), looked=False)
        seeds = self._constant_seeds()
        self._draws()
        scales = self._scales()
        self._outputs(seeds)
        self._grids()
        entries = self._entries()
        self._reuse(entries)
        unit = [entry for entry in entries if entry.same_scale]
        epsilon = self._amounts(entries)
        quantities = self._quantities(unit, {entry.key for entry in entries})
        for key, message in scales.items():
            # If its noise is seen in the output, the claim decides: smooth sensitivity is allowed.
            decided = self.asked is not None and epsilon is not None
            if not (decided and any(entry.key == key for entry in entries)):
                self._find("scale", message, key)
        for entry in map(mirrored, entries):
            if not entry.same_scale and entry.key not in scales and self.asked is None:
                self._find(
                    "scale",
                    f"{entry.law} noise reaches the output with scale {abs(entry.spread[0]):.6g} "
                    f"on the dataset and {abs(entry.spread[1]):.6g} on the neighbour",
                    entry.key,
                )
        looked = self._looked()
        self._messages()
        self._note_unrecorded()
        if replayer.late:
            self.notes.append("the time was over before all runs were made")
        if self._coins:
            self.notes.append(
                "coins are tossed (uniform numbers, integers or choices), which may be those of a "
                "subsample or of randomized response: no epsilon was computed"
            )
        return Recording(
            name,
            tuple(dict.fromkeys(self.findings)),
            quantities,
            epsilon,
            looked,
            tuple(dict.fromkeys(self.notes)),
        )

    def _unrepeatable(self, name: str) -> Recording:
        """Return the result where two runs with the same noise differ, with possible reasons."""
        kept = (*self.again.others, *self.runs[0][0].others)
        iterator = next((part for part in kept if isinstance(part, Iterator)), None)
        if iterator is not None:
            kind = type(iterator).__name__
            note = f"the output holds a {kind}, which is not read: return a list"
            return Recording(name, (), not_followed=(note,))
        note = (
            "two runs with the same recorded noise differ: the mechanism has random numbers "
            "from C code, from the time, or from a generator that it keeps where this does not "
            "look: draw from the rng that is passed; nothing was compared"
        )
        seeded = tuple(
            f"{Path(file).name}:{line}: a source is seeded with {seed} in every run"
            for file, line, seed in self._constant_seeds()
        )
        for file, line, first, last in rising_seeds([*chain(*zip(*self.runs)), self.again]):
            self._find(
                "seed",
                f"a source is seeded with numbers that rise from call to call, {first} to "
                f"{last}, such as a count or the time: who guesses them can draw the noise",
                (file, line),
            )
        return Recording(name, tuple(self.findings), not_followed=(note, *seeded))

    def _find(self, kind: str, message: str, key: Any) -> None:
        file, line = self.home if key is None else key[:2]
        self.findings.append(Finding(kind, message, file, line))

    def _all(self, side: int, what: Callable[[RecordedRun], Any]) -> Any:
        """Return what all usual runs on one input have in common, or None."""
        first = what(self.runs[side][0])
        if any(not agree(first, what(run)) for run in self.runs[side][1:]):
            return None
        return first

    def _differs(
        self, what: Callable[[RecordedRun], Any], alike: bool = False
    ) -> tuple[Any, Any] | None:
        """Return the values on both inputs if they differ independently of chance, else None."""
        pair = self._all(0, what), self._all(1, what)
        if pair[0] is None or pair[1] is None or agree(*pair):
            return None
        extreme = self._alike_runs if alike else self._extreme_runs
        if extreme is None:
            return None
        for side in (0, 1):
            if any(not agree(pair[side], what(run)) for run in extreme[side]):
                return None
        return pair

    @cached_property
    def _extreme_runs(self) -> list[list[RecordedRun]] | None:
        self.replayer.learn(self.runs)
        count = _EXTREME * (_TOSSED if self._coins else 1)
        top = self.replayer.farthest(_PROBES)
        if top < FARTHEST:
            self.notes.append(
                f"noise of more than 10^{top:g} times its usual size, with which runs grow"
            )
        return self.replayer.pairs(_RUNS, count, top)

    def _note_unrecorded(self) -> None:
        """Add notes on manipulated or seeded generators, and on unrecorded randomness."""
        for mark in sorted({mark for run in self.usual for mark in run.tape.marks}):
            self.notes.append(_MARKS[mark])
        hypothesis = sys.modules.get("hypothesis")
        inside = hypothesis is not None and hypothesis.currently_in_test_context()
        for name, (substitute, known) in self.held.items():
            seed = known
            if callable(known):  # a default source, which Hypothesis seeds for its tests
                seed = known() if substitute.was_used and not inside else None
            if substitute.was_used and seed is not None:
                self.notes.append(
                    f"{name} was seeded with {seed} before the recording: its noise is the same in "
                    "every process, and whoever knows the seed can draw it again"
                )
        silent = not any(run.tape.draws for run in self.usual)
        if silent and any(not equal(run, self.runs[0][0]) for run in self.runs[0]):
            self.notes.append(
                "the noise: outputs vary with the generator, and none of its draws was recorded"
            )

    @cached_property
    def _alike_runs(self) -> list[list[RecordedRun]] | None:
        """The extreme runs whose output has its usual shape, with less noise if needed."""
        extreme = self._extreme_runs
        if extreme is None:
            return None
        alike = self._of_usual_shape(extreme)
        if min(map(len, alike)) < _ALIKE:
            count = len(extreme[0])
            mild = self.replayer.pairs(_RUNS + count, count, MILD) or [[], []]
            alike = [a + b for a, b in zip(alike, self._of_usual_shape(mild))]
        if min(map(len, alike)) < _ALIKE:
            self.notes.append(
                "the output has other shapes where noise is larger than usual: whether each part "
                "of it has noise"
            )
            return None
        return alike

    def _of_usual_shape(self, runs: list[list[RecordedRun]]) -> list[list[RecordedRun]]:
        usual = [side[0].structure for side in self.runs]
        return [[run for run in side if run.structure == s] for side, s in zip(runs, usual)]

    def _constant_seeds(self) -> list[tuple[str, int, str]]:
        """Return (file, line, seed) of sources with one seed in all usual runs on the dataset."""
        return sorted(constant_seeds(self.runs[0]))

    @property
    def _one_structure(self) -> bool:
        """Whether the outputs of all usual runs have one structure."""
        return all(run.structure == self.usual[0].structure for run in self.usual)

    @cached_property
    def _coins(self) -> bool:
        """Whether the runs toss coins, whose outcomes vary or are drawn from the tape."""
        outcomes: dict[Any, set[Any]] = {}
        for run in self.usual:
            for draw in run.tape.draws:
                if not draw.noise:
                    outcomes.setdefault(draw.key, set()).add(draw.outcome)
        return any(None in seen or len(seen) > 1 for seen in outcomes.values())

    def _draws(self) -> None:
        """Compare the numbers and shapes of draws of noise."""

        def sites(run: RecordedRun) -> dict[Any, Any]:
            found: dict[Any, list[Any]] = {}
            for draw in run.noise.values():
                found.setdefault(draw.key[:3], []).append(draw.shape)
            return found

        if all(drawn_alike(a, b) for a, b in zip(*self.runs)):
            if any(set(a.noise) != set(b.noise) for a, b in zip(*self.runs)):
                self.notes.append(
                    "noise is drawn at other lines on the dataset than on the neighbour: it is not "
                    "the same noise, so that shifts cannot be seen"
                )
            return
        structures = {repr(run.structure) for run in self.usual}
        # At delta > 0, a mechanism may suppress keys that few records have.
        claimed = self.asked is not None and (len(structures) == 1 or self.asked.delta > 0.0)
        places = {site for side in (0, 1) for site in sites(self.runs[side][0])}
        for site in sorted(places):
            pair = self._differs(lambda run, site=site: sites(run).get(site, []))  # type: ignore[misc]
            if pair is None:
                continue
            first, second = pair
            if len(first) != len(second):
                what = f"{len(first)} draws of {site[2]} noise on the dataset and {len(second)}"
            else:
                shapes = next((a, b) for a, b in zip(first, second) if a != b)
                what = f"{site[2]} noise of shape {shapes[0]} on the dataset and {shapes[1]}"
            what += " on the neighbour: what is drawn depends on the data"
            if claimed:  # it may still satisfy the claim, such as with noise for each record
                self.notes.append(f"{Path(site[0]).name}:{site[1]}: {what}")
            else:
                self._find("draws", what, site)

    def _scales(self) -> dict[Any, str]:
        """Return the draws whose scale depends on the data but not on noise, with a message."""
        found = {}
        for key in self._common():
            pair = self._differs(lambda run, key=key: getattr(run.noise.get(key), "scale", None))  # type: ignore[misc]
            if pair is not None:
                shown = [f"{float(np.max(scale)):.6g}" for scale in pair]
                found[key] = (
                    f"the scale of {key[2]} noise depends on the data: {shown[0]} on the dataset, "
                    f"{shown[1]} on the neighbour"
                )
        return found

    def _common(self) -> list[Any]:
        """Return the keys of the draws of noise that all runs make, in the first run's order."""
        sets = [set(run.noise) for run in self.usual]
        return [key for key in self.usual[0].noise if all(key in each for each in sets)]

    def _outputs(self, seeds: list[tuple[str, int, str]]) -> None:
        """Find parts of the output that depend on the data and have no noise."""
        pair = self._differs(lambda run: run.structure)
        if pair is not None and self._extremes_suffice():
            shapes = [in_words(side[0]) for side in self.runs]
            self._find(
                "size",
                "what the output is depends on the data without noise: "
                f"{shapes[0]} on the dataset, {shapes[1]} on the neighbour",
                None,
            )
            return
        if not self._one_structure:
            self.notes.append("outputs have several shapes: their entries were not compared")
            return
        places = [place for place in self._suspects() if self._is_exact(place)]
        parts = [
            k
            for k in range(len(self.usual[0].others))
            if self._differs(lambda run, k=k: run.others[k], alike=True)  # type: ignore[misc]
        ]
        if not (places or parts):
            self._forms()
        if not (places or parts) or not self._extremes_suffice():
            return
        size = self.usual[0].numbers.size
        if parts:
            what = "a part of the output that is no number has"
        elif size == 1:
            what = "the output has"
        else:
            shown = ", ".join(map(str, places[:8])) + (", ..." if len(places) > 8 else "")
            several, verb = ("entries", "have") if len(places) > 1 else ("entry", "has")
            what = f"{several} {shown} (from 0) of {size} numbers of the output {verb}"
        values = ""
        if places:
            a, b = (self.runs[side][0].numbers[places[0]] for side in (0, 1))
            values = f" ({a:.6g} on the dataset, {b:.6g} on the neighbour)"
        if seeds:
            file, line, seed = seeds[0]
            message = (
                f"a source is seeded with the constant {seed}, so that its noise is the same in "
                f"every run: {what} no other noise and depends on the data{values}"
            )
            self.findings.append(Finding("seed", message, file, line))
        else:
            self._find("exact", f"{what} no noise and depends on the data{values}", None)

    def _messages(self) -> None:
        """Find errors, raised in some runs, whose message depends on the data but not on noise."""
        if not any(MESSAGE in run.form for run in self.usual):
            return
        told = [
            Counter(run.form[MESSAGE] for run in (*usual, *far) if MESSAGE in run.form)
            for usual, far in zip(self.runs, self._extreme_runs or [[], []])
        ]
        a, b = (str([*each])[:_SHOWN] for each in told)
        often = all(len(each) == 1 and each.total() >= _ALIKE for each in told)
        if often and a != b and self._extremes_suffice():
            said = f"an error depends on the data without noise: {a} on the dataset, {b}"
            self._find("exact", f"{said} on the neighbour", None)

    def _forms(self) -> None:
        """Find types, formats and the like that depend on the data though the values may not."""
        first = self.usual[0].form
        if all(run.form == first for run in self.usual):
            return
        for key in first:
            pair = self._differs(lambda run, key=key: run.form.get(key), alike=True)  # type: ignore[misc]
            if pair is not None and self._extremes_suffice():
                a, b = (str(each)[:_SHOWN] for each in pair)
                self._find(
                    "exact",
                    "how the output is stored or written, or a warning, depends on the data "
                    f"without noise: {key[1]} {a} on the dataset, {b} on the neighbour",
                    None,
                )
                return

    def _extremes_suffice(self) -> bool:
        """Return whether extreme runs exhaust the effects of chance; if not, note why."""
        extreme = self._extreme_runs or [[], []]
        missed = {site for side in extreme for run in side for site in run.tape.undecided}
        whether = "whether what is the same in these runs is the same in all"
        for file, line, name in sorted(missed):
            self.notes.append(
                f"{Path(file).name}:{line}: rare outcomes of {name}, which could not be made "
                f"likely: {whether}"
            )
        tossed = {
            (side, frozenset(draw.key for draw in run.tape.draws if not draw.noise))
            for side in (0, 1)
            for run in self.runs[side] + extreme[side]
        }
        if len(tossed) > 2 and not missed:
            self.notes.append(
                "coins decide how many others are tossed, so that what they do together may be "
                f"rare: {whether}"
            )
        outside = any(OUTSIDE in run.tape.marks for run in self.usual)
        return not missed and len(tossed) <= 2 and not outside

    def _suspects(self) -> list[int]:
        """Return the entries that are constant on at least one input and differ between inputs."""
        values = [np.array([run.numbers for run in side]) for side in self.runs]
        most = max(map(slack, self.usual))
        constant = [spread(v) <= most for v in values]
        moves = ~(abs(values[0][0] - values[1][0]) <= 1e3 * most)
        moves &= ~(np.isnan(values[0][0]) & np.isnan(values[1][0]))
        moves &= values[0][0] != values[1][0]
        found = (constant[0] & constant[1] & moves) | (constant[0] ^ constant[1])
        return np.flatnonzero(found).tolist()[:10_000]

    def _is_exact(self, place: int) -> bool:
        """Return whether an entry is constant under extreme noise, on both inputs or on one."""
        extreme = self._alike_runs
        if extreme is None:
            return False
        gap = abs(self.runs[0][0].numbers[place] - self.runs[1][0].numbers[place])
        still = []
        for side in (0, 1):
            usual = np.array([run.numbers[place] for run in self.runs[side]])
            first, bitwise = usual[0], bool(np.all(same(usual, usual[0])))
            most = max(map(slack, self.runs[side]))
            constant = bitwise or bool(np.ptp(usual) <= most)
            telling = 0
            for run in extreme[side]:
                moved = run.numbers[place]
                # Noise that is added and subtracted again leaves its rounding error.
                off = (_REMAINDER if bitwise else 1.0) * max(most, slack(run))
                telling += not (bitwise and off > 1e-3 * gap)  # a gap may be NaN
                constant = constant and bool(same(moved, first) or abs(moved - first) <= off)
            still.append(constant and 4 * telling >= len(extreme[side]))
        if all(still):
            return True
        if not any(still):
            return False
        # Constant on one input, noisy in every run on the other.
        side = still.index(False)
        found = [run.numbers[place] for run in self.runs[side]]
        return len(set(found)) == len(found)

    def _grids(self) -> None:
        """Find numbers on a grid that the data shift: rounded noise on an unrounded number."""
        first = self.usual[0]
        if not self._one_structure or not first.numbers.size:
            return
        values = [np.array([run.numbers for run in side]) for side in self.runs]
        wide = np.abs(np.concatenate(values)).max(axis=0)
        known = np.isfinite(wide)
        for side in values:
            known &= np.array([len(set(column)) >= _DIFFERENT for column in side.T.tolist()])
        steps = [abs(side[1:] - side[0]) for side in values]
        step = common_step(np.concatenate(steps), _GRID * wide)
        known &= off_grid(values[1][0] - values[0][0], step) > 1e-3 * step
        known &= step > 1e2 * _GRID * wide
        mild = self.replayer.pairs(3 * _EXTREME, _ALIKE, MILD) if known.any() else None
        if mild is None or any(run.structure != first.structure for run in chain(*mild)):
            return
        for place in np.flatnonzero(known)[:_SHOWN].tolist():
            columns = [
                np.array([run.numbers[place] for run in (*usual, *more)])
                for usual, more in zip(self.runs, mild)
            ]
            apart = np.concatenate([abs(column - column[0]) for column in columns])
            g = float(common_step(apart[:, None], 1e-4 * step[[place]])[0])
            rest = float(off_grid(columns[1][0] - columns[0][0], g))
            if g > 1e-2 * step[place] and rest > 1e-2 * g and self._extremes_suffice():
                self._find(
                    "exact",
                    f"the numbers of entry {place} of the output are multiples of {g:.6g} apart, "
                    f"and {rest:.6g} away from such on the neighbour: what the noise leaves of "
                    "them depends on the data",
                    None,
                )
                return

    # The amount of noise

    def _entries(self) -> list[Entry]:
        """Return the output entries that are a N + c for one number N of noise, on both inputs."""
        if not self._one_structure or len(self.runs[0]) < 4:
            return []
        noise = self.usual[0].noise
        keys = [
            key
            for key in self._common()
            if len({run.noise[key].shape for run in self.usual}) == 1
            and noise[key].value is not None
        ]
        sizes = [int(np.prod(noise[key].shape)) for key in keys]
        if not keys or sum(sizes) > _LARGEST:
            if keys:
                self.notes.append(f"more than {_LARGEST:,} numbers of noise: shifts not computed")
            return []
        where = [(key, index) for key, size in zip(keys, sizes) for index in range(size)]
        fits = [self._fit(side, keys) for side in (0, 1)]
        places = sorted(set(fits[0]) & set(fits[1]))
        places = [place for place in places if fits[0][place].noise == fits[1][place].noise]
        used = {fits[0][place].noise for place in places}
        extreme = None
        if places and len(used) < len(where):
            # Noise that does not reach the output may select the noise that does.
            extreme = self._extreme_runs
            if extreme is None:
                return []
        found = []
        for place in places:
            pair = fits[0][place], fits[1][place]
            key, index = where[pair[0].noise]
            if extreme is None or all(
                self._holds(run, place, key, index, fit)
                for fit, runs in zip(pair, extreme)
                for run in runs
            ):
                found.append(self._entry(place, key, index, pair))
        return [entry for entry in found if entry is not None]

    def _entry(self, place: int, key: Any, index: int, fits: tuple[Fit, Fit]) -> Entry | None:
        """Return an output entry that is a N + c, None if N's scale depends on other noise."""
        scales = [{entry_of(run.noise[key], index) for run in runs} for runs in self.runs]
        if any(len(each) > 1 for each in scales):
            return None
        scale = scales[0].pop(), scales[1].pop()
        factors, centers = (fits[0].factor, fits[1].factor), (fits[0].center, fits[1].center)
        shown = [run.numbers[place] for run in self.runs[0]]
        unit = 2.0**-52 * abs(shown[0])
        if not close(*factors):
            off, reach = fits[0].off + fits[1].off, np.ptp(shown)
            apart = abs(factors[0] - factors[1]) / abs(factors[0])
            # In float32, or added to a large number, the factors have rounding errors.
            rough = off > 2.0**12 * unit and apart <= _FIT
            if rough or apart * reach <= 8.0 * (off + unit):
                factors = factors[0], factors[0]
        spreads = factors[0] * scale[0], factors[1] * scale[1]
        if close(*factors) and close(*scale):
            # With the same noise, outputs differ by as much as the quantities.
            move = [a.numbers[place] - b.numbers[place] for a, b in zip(*self.runs)]
            centers = centers[0], centers[0] - float(np.median(move))
            factors, spreads = (factors[0], factors[0]), (spreads[0], spreads[0])
        law = self.usual[0].noise[key].law
        off = sum((fit.off + unit) / max(abs(s), 1e-300) for fit, s in zip(fits, spreads))
        return Entry(place, key, index, law, factors, centers, spreads, off)

    def _fit(self, side: int, keys: list[Any]) -> dict[int, Fit]:
        """Return the output entries that equal a N + c on one input."""
        runs = self.runs[side]
        noise = np.array(
            [
                np.concatenate([np.ravel(np.asarray(run.noise[key].added)) for key in keys])
                for run in runs
            ]
        )
        output = np.array([run.numbers for run in runs])
        moved, drawn = output - output[0], noise - noise[0]
        ratio, wanted = drawn[2] / drawn[1], moved[2] / moved[1]
        good = np.flatnonzero(np.isfinite(ratio))
        order = good[np.argsort(ratio[good])]
        at = np.searchsorted(ratio[order], wanted)
        found: dict[int, Fit] = {}
        for place in np.flatnonzero(np.isfinite(wanted)):
            for near in range(max(0, at[place] - 3), min(len(order), at[place] + 3)):
                j = int(order[near])
                factor = float(moved[:, place] @ drawn[:, j] / (drawn[:, j] @ drawn[:, j]))
                off = float(abs(moved[:, place] - factor * drawn[:, j]).max())
                if factor and off <= _FIT * abs(moved[:, place]).max():
                    rest = float(np.median(output[:, place] - factor * noise[:, j]))
                    found[int(place)] = Fit(j, factor, rest, off)
                    break
        return found

    @staticmethod
    def _holds(run: RecordedRun, place: int, key: Any, index: int, fit: Fit) -> bool:
        noise = getattr(run.noise.get(key), "added", None)
        if noise is None or index >= noise.size or place >= run.numbers.size:
            return False
        term = fit.factor * float(noise.flat[index])
        off = abs(run.numbers[place] - term - fit.center)
        return bool(off <= _FIT * (abs(term) + abs(fit.center)))

    def _reuse(self, entries: list[Entry]) -> None:
        """Find a number of noise shared by two answers, whose difference then has no noise."""
        first: dict[Any, Entry] = {}
        for entry in entries:
            other = first.setdefault((entry.key, entry.index), entry)
            moves = [(e.center[1] - e.center[0]) / e.factor[0] for e in (other, entry)]
            scale = abs(other.spread[0] / other.factor[0])
            if other.same_scale and entry.same_scale and abs(moves[0] - moves[1]) > 1e-6 * scale:
                self._find(
                    "reuse",
                    f"the same {entry.law} noise is in entries {other.place} and {entry.place} of "
                    "the output, and their difference, which has none, depends on the data",
                    entry.key,
                )
                return

    def _amounts(self, entries: list[Entry]) -> float | None:
        """Compare shifts with scales and return a lower bound on epsilon, None if unknown."""
        known = (mirrored(entry) for entry in entries if entry.law in LAWS)
        unique = list({(entry.key, entry.index): entry for entry in known}.values())
        if self._coins or not unique:
            return None
        epsilon, broken_by = self._compared(unique)
        if broken_by or math.isinf(epsilon):  # perhaps only in tails that a clamp removes
            unique = self._confined(unique)
            if not unique:
                return None
            epsilon, broken_by = self._compared(unique)
        if broken_by:
            self._find(*broken_by)
        return epsilon

    def _compared(self, entries: list[Entry]) -> tuple[float, tuple[str, str, Any] | None]:
        """Return a lower bound on epsilon, and the finding (kind, message, key) or None."""
        entries.sort(key=lambda e: -abs(e.center[1] - e.center[0]) / abs(e.spread[0]))
        losses = np.array([loss(entry) for entry in entries[:CLOSEST]])
        rest = [e for e in entries[CLOSEST:] if e.law == "laplace" and e.same_scale]
        more = sum(e.shift * abs(e.factor[0]) / abs(e.spread[0]) for e in rest)
        epsilon = float(losses.sum(axis=0).max()) + more
        if self.asked is None:
            return epsilon, None
        message = violation(entries, epsilon, self.asked, getattr(self.claim, "rho", None))
        if message is None:
            return epsilon, None
        worst = entries[int(np.argmax(losses.max(axis=1)))]
        kind = "epsilon"
        if not worst.same_scale:
            kind = "scale"
        elif math.isinf(epsilon) and self.asked.name == "epsilon" and not self.asked.delta:
            kind = "law"
        return epsilon, (kind, message, worst.key)

    def _confined(self, entries: list[Entry]) -> list[Entry]:
        """Return the entries with the range in which extreme runs confirm a N + c."""
        extreme = self._extreme_runs
        if extreme is None:
            return entries
        low, high = np.full(len(entries), -np.inf), np.full(len(entries), np.inf)
        lost = np.zeros(len(entries), dtype=bool)
        ordered = ~lost
        for side in (0, 1):
            both = [terms(run, entries, side) for run in self.runs[side] + extreme[side]]
            output, wanted = (np.array(each) for each in zip(*both))
            center = np.array([entry.center[side] for entry in entries])
            good = abs(output - wanted) <= _FIT * (abs(wanted - center) + abs(center))
            usual = output[: len(self.runs[side])]
            above, below = ~good & (wanted > usual.max(0)), ~good & (wanted < usual.min(0))
            lost |= (~good & ~above & ~below).any(axis=0)
            top = np.where(above, wanted, np.inf).min(axis=0)
            bottom = np.where(below, wanted, -np.inf).max(axis=0)
            seen = good & (wanted < top) & (wanted > bottom)
            top = np.where(top < np.inf, np.where(seen, wanted, -np.inf).max(axis=0), top)
            least = np.where(seen, wanted, np.inf).min(axis=0)
            bottom = np.where(bottom > -np.inf, least, bottom)
            lost |= (~good & (output < top) & (output > bottom)).any(axis=0)
            ordered &= ~(above & ~(output >= top) | below & ~(output <= bottom)).any(axis=0)
            low, high = np.maximum(low, bottom), np.minimum(high, top)
        ranges = zip(entries, low.tolist(), high.tolist(), ordered.tolist(), ~lost & (low < high))
        return [replace(e, seen=(a, b), ordered=o) for e, a, b, o, is_kept in ranges if is_kept]

    def _quantities(self, entries: list[Entry], released: set[Any]) -> tuple[Quantity, ...]:
        """Return the quantities that got noise; compare their shifts with the sensitivity."""
        first = self.runs[0][0]
        forced = {
            key: draw.value
            for key, draw in first.noise.items()
            if draw.value is not None and np.any(draw.quantity)
        }
        other = self.replayer.run(1, 0, forced=forced)
        seen: dict[Any, dict[int, float]] = {}
        for entry in entries:
            seen.setdefault(entry.key, {})[entry.index] = entry.shift
        found, unseen = [], Counter[tuple[str, int, str]]()
        for key, draw in first.noise.items():
            answer = other.noise.get(key)
            moves = np.array(list(seen.get(key, {}).values()))
            adds = np.any(draw.quantity) or (answer is not None and np.any(answer.quantity))
            if draw.law == "uniform":
                adds = False
            if key not in seen and adds and answer is not None:
                if np.shape(draw.quantity) != np.shape(answer.quantity):
                    continue
                moves = np.ravel(abs(np.subtract(answer.quantity, draw.quantity, dtype=float)))
            elif key not in seen:
                if key in released:  # with two scales, so the shift is not defined
                    continue
                unseen[key[:3]] += 1
                continue
            order = {"normal": 2, "spherical": 2, "cubic": np.inf}.get(draw.law, 1)
            shift = float(np.linalg.norm(moves, order)) if moves.size else 0.0
            scale = float(np.min(draw.scale)) if np.size(draw.scale) else math.nan
            found.append(Quantity(draw.law, scale, shift, key in seen, *key[:2]))
            if self.sensitivity is not None and shift > self.sensitivity * (1.0 + 10.0 * _FIT):
                self._find(
                    "sensitivity",
                    f"what gets {draw.law} noise moves by {shift:.6g} (L{order}) where a "
                    f"sensitivity of {self.sensitivity:.6g} is stated",
                    key,
                )
        for (file, line, law), count in unseen.items():
            self.notes.append(
                f"{Path(file).name}:{line}: what {count} draws of {law} noise are added to (they "
                "reach the output together with other noise, or changed)"
            )
        return tuple(found)

    def _looked(self) -> bool:
        """Return whether runs may differ between the inputs; if they never do, add a finding."""
        if any(not equal(a, b) for a, b in zip(*self.runs)):
            return True
        steady = [k for k, v in self.runs[0][0].form.items() if self.again.form.get(k) == v]
        if any(a.form.get(key) != b.form.get(key) for a, b in zip(*self.runs) for key in steady):
            return True
        for pair in zip(*self.runs):
            one, two = ({draw.key: draw for draw in run.tape.draws} for run in pair)
            if set(one) != set(two):
                return True
            for key, draw in one.items():
                other = two[key]
                if draw.shape != other.shape or not (
                    agree(draw.quantity, other.quantity) and agree(draw.scale, other.scale)
                ):
                    return True
        if any(not equal(a, b) for a, b in zip(*(self._extreme_runs or ([], [])))):
            return True
        # A rounded number or a choice may be the same by chance.
        hidden = any(map(is_repr, self.runs[0][0].others))
        if self._coins or hidden or not self._equality_decides():
            self.notes.append(
                f"the outputs of {len(self.runs[0])} runs are the same on both data sets, which "
                "may be chance: whether the changed record is looked at is open"
            )
            return True
        self._find(
            "untested",
            "the mechanism never looked at the changed record: with the same noise its outputs are "
            "the same on both data sets",
            None,
        )
        return False

    def _equality_decides(self) -> bool:
        """Return whether equal outputs prove the inputs unused: all continuous or constant."""
        if any(run.structure != self.runs[0][0].structure for run in self.runs[0]):
            return False
        values = np.array([run.numbers for run in self.runs[0]])
        different = np.array([len(np.unique(column)) for column in values.T], dtype=int)
        rounded = np.array([is_rounded(column) for column in values.T], dtype=bool)
        different[rounded & (different > 1)] = 2
        if (different == len(values)).all() and not self.runs[0][0].others:
            return True
        extreme = self._extreme_runs
        if extreme is None or not (np.isin(different, (1, len(values)))).all():
            return False
        still = different == 1
        return all(
            run.structure == self.runs[0][0].structure
            and run.others == self.runs[0][0].others
            and bool(np.all(same(run.numbers, values[0]) | ~still))
            for run in [*self.runs[0], *extreme[0], *extreme[1]]
        )
