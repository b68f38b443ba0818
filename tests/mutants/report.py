"""The report of mutation testing, with confidence intervals."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from scipy.stats import beta

CLASSES = ("equivalent", "cosmetic", "missing test")


def interval(noticed: int, tried: int, level: float = 0.95) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a share."""
    tail = (1.0 - level) / 2.0
    low = beta.ppf(tail, noticed, tried - noticed + 1) if noticed else 0.0
    high = beta.ppf(1.0 - tail, noticed + 1, tried - noticed) if noticed < tried else 1.0
    return float(low), float(high)


def _row(name: str, kinds: list[str]) -> str:
    tried = len(kinds)
    equivalent, noticed = kinds.count("equivalent"), kinds.count("noticed")
    counted = tried - equivalent
    share = f"{100.0 * noticed / counted:.1f}" if counted else "-"
    cells = [
        name, tried, noticed, equivalent, kinds.count("cosmetic"), kinds.count("missing test"),
        share,
    ]  # fmt: skip
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _share(noticed: int, missing: int) -> str:
    low, high = interval(noticed, noticed + missing)
    share = noticed / (noticed + missing)
    return f"{share:.1%} (95 % interval: {100.0 * low:.1f} to {100.0 * high:.1f})"


def _first_tries(kinds: Mapping[str, str], first: Mapping[str, str]) -> str:
    """Return a sentence about the first tries, ``kinds`` being what is known of them now.

    A survivor whose code has been deleted since counts as one that changed a result.
    """
    noticed = sum(first[key] == "noticed" for key in kinds)
    now = [kind for key, kind in kinds.items() if first[key] != "noticed"]
    missing = sum(kind in ("noticed", "missing test") for kind in now)
    if not noticed + missing:
        return ""
    files = Counter(key.split("/")[1].partition("::")[0] for key in kinds)
    folder, count = files.most_common(1)[0]
    return (
        f" At the first try they noticed {noticed} of {noticed + missing} among the last "
        f"{len(kinds)} ({count} in {folder}): {_share(noticed, missing)}."
    )


def report(
    results: Mapping[str, tuple[str, str]],
    classes: Mapping[str, tuple[str, str]],
    total: int,
    first: Mapping[str, str],
) -> str:
    """Return the report: a summary, tables by folder and module, and every survivor.

    ``first`` has the verdicts of first tries: tests were written for survivors, so that only they
    estimate the share of other faults that are noticed.
    """
    kinds: dict[str, str] = {}
    for key, (verdict, _) in results.items():
        missing = ("missing test", "not looked at yet")
        kinds[key] = "noticed" if verdict == "noticed" else classes.get(key, missing)[0]
    folders: dict[str, list[str]] = defaultdict(list)
    modules: dict[str, list[str]] = defaultdict(list)
    for key, kind in kinds.items():
        file = key.partition("::")[0].removeprefix("dpanalysis/")
        folders[file.partition("/")[0]].append(kind)
        modules[file].append(kind)
    every = list(kinds.values())
    noticed, missing = every.count("noticed"), every.count("missing test")
    lines = [
        "# Faults put in by a machine",
        "",
        f"Of {len(every)} one-line faults, drawn from {total}, the tests notice {noticed}; of the "
        f"others {every.count('equivalent')} change nothing, {every.count('cosmetic')} only speed "
        f"or a message, {missing} a result."
        + _first_tries({key: kinds.get(key, "missing test") for key in first}, first),
        "",
        "Written by `python -m tests.mutants report` from `results.csv` and `survivors.toml`.",
        "Shares in the tables are of all faults that are not equivalent, those of speed and of",
        "messages included, in percent.",
        "",
    ]
    head = "| {} | tried | noticed | equivalent | cosmetic | missing test | share |"
    for title, groups in (("folder", folders), ("module", modules)):
        lines += [head.format(title), "|---|---|---|---|---|---|---|"]
        lines += [_row(name, groups[name]) for name in sorted(groups)]
        lines += [_row("all", every), ""]
    lines += ["## Alive", ""]
    for key in sorted(kinds):
        if kinds[key] != "noticed":
            why = classes.get(key, ("", "not looked at yet"))[1]
            lines.append(f"- `{key}`: {kinds[key]}, {why}")
    return "\n".join(lines) + "\n"
