"""Command line: ``python -m figures [names]``, and ``report``, ``verify``, ``again``."""

from __future__ import annotations

import argparse
import errno
import math
import os
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import figures
from dpanalysis.experiments import SweepError, SweepStopped, sweeping
from dpanalysis.experiments.backends import check_backend, configured

from . import _provenance
from ._making import Clock, Options, compute, draw, unusable, word_on_kernels
from ._page import write_index
from ._verify import TOLERANCE, close_row

INTERRUPTED = 130  # the shell's code for a process ended by Ctrl-C
STOPPED = 75  # EX_TEMPFAIL: the same command resumes
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m figures",
        description="Make the papers' figures and tables: PNG, PDF, CSV with settings, and an "
        "index.html that shows them all. `python -m figures verify --help`, `again --help` and "
        "`report --help`: stored results, and the pages written from them.",
        epilog="Finished cells of long experiments are kept under DIR/NAME/cells, and tables "
        "and pictures as long as settings and code do not change: an interrupted run resumes "
        "where it stopped. Real data are read from $DPANALYSIS_DATA. Exit codes: 0 all made, "
        "1 some failed, 2 bad arguments, 75 stopped by --stop-after, 130 by Ctrl-C. "
        "Example: python -m figures kuru_fig1 kuru_fig2 --scale paper --jobs 4",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures to make (default: all)")
    parser.add_argument(
        "--scale",
        choices=figures.SCALES,
        default="quick",
        help="quick: all of them in a few minutes (default); paper: the papers' sizes",
    )
    parser.add_argument(
        "--jobs",
        type=_jobs,
        default=-1,
        metavar="N",
        help="cells at once; -1, the default: one per core; results do not depend on it",
    )
    parser.add_argument(
        "--backend",
        metavar="B",
        help="where cells run: loky (processes, the default), threading, dask (the cluster at "
        "$DASK_SCHEDULER_ADDRESS, or workers here), ray (the cluster at $RAY_ADDRESS, or "
        "workers here); results do not depend on it",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).with_name("output"),
        metavar="DIR",
        help="folder of the results (default: %(default)s)",
    )
    parser.add_argument(
        "--stop-after",
        type=_seconds,
        metavar="S",
        help="start no cell after S seconds, finish those running, and exit with 75: the same "
        "command resumes",
    )
    parser.add_argument(
        "--store",
        action="store_true",
        help="put the tables into the ledger, figures/results (paper scale only); the commit is "
        "git's, or $GIT_COMMIT, and must be clean; cells of single numbers that the ledger has are "
        "reused, and those finished when --stop-after ends the run are added to it",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="delete the kept cells of these figures first"
    )
    parser.add_argument(
        "--device",
        metavar="D",
        help="where PyTorch networks are trained: cpu (default), cuda; kept cells are not trained "
        "again",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    parser.add_argument("--list", action="store_true", help="list the figures and stop")
    return parser


def _jobs(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value != -1 and value < 1:
        raise argparse.ArgumentTypeError(f"must be -1 or an integer of at least 1, got {text}")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0.0:
        raise argparse.ArgumentTypeError(f"must be a number of seconds, at least 0, got {text}")
    return value


@contextmanager
def _workers(backend: str | None, jobs: int) -> Iterator[None]:
    """Run the cells inside on a backend of joblib; for Dask, find or start a cluster."""
    if backend != "dask":
        with configured(backend):
            yield
        return
    from dask import config
    from distributed import Client

    here: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": ":0"}
    if jobs > 0:
        here["n_workers"] = jobs
    with Client(**({} if config.get("scheduler-address", None) else here)), configured(backend):
        yield


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: all made; 1: some failed (the others are made); 2: bad arguments; 75: stopped by
    ``--stop-after``; 130: Ctrl-C.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    if argv[:1] in (["verify"], ["report"], ["again"]):
        return {"verify": _verify, "report": _report, "again": _again}[argv[0]](argv[1:])
    parser = _parser()
    arguments = parser.parse_args(argv)
    _check_names(parser, arguments.names)
    if arguments.list:
        width = max(map(len, figures.FIGURES))
        for name in figures.FIGURES:
            print(f"{name:{width}}  {figures.load(name).TITLE}")
        return 0
    if arguments.store and arguments.scale != "paper":
        parser.error("--store needs --scale paper")
    if arguments.store and not os.environ.get("DPANALYSIS_DATA"):
        parser.error("--store needs the papers' data: set $DPANALYSIS_DATA")
    if arguments.store:
        _need_a_clean_commit(parser)
    try:
        check_backend(arguments.backend)
    except (ValueError, ImportError) as error:
        parser.error(str(error))
    if arguments.device:
        os.environ["DPANALYSIS_DEVICE"] = arguments.device  # workers inherit it
    why = unusable(arguments.out)
    if why:
        parser.error(f"nothing can be written into --out {arguments.out}: {why}")
    options = Options(
        out=arguments.out,
        scale=arguments.scale,
        jobs=arguments.jobs,
        fresh=arguments.fresh,
        progress=not arguments.quiet,
        store=arguments.store,
    )
    for name in arguments.names:
        if needs := _missing(name):
            parser.error(f"{name} needs {needs}: pip install 'dpanalysis-toolkit[{needs}]'")
    names = arguments.names or list(_installed(figures.FIGURES))
    word = word_on_kernels()
    if word:
        print(word, flush=True)
    with _workers(arguments.backend, arguments.jobs), sweeping(stop_after=arguments.stop_after):
        return _make_all(names, options, arguments.stop_after)


def _need_a_clean_commit(parser: argparse.ArgumentParser) -> None:
    found = _provenance.commit()
    if not _provenance.is_clean(found):
        parser.error(f"a stored result names a clean commit, this is {found}: commit first")


def _check_names(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in figures.FIGURES]
    if unknown:
        parser.error(f"unknown figure {', '.join(unknown)}; known: {', '.join(figures.FIGURES)}")


def _installed(names: Iterable[str]) -> Iterator[str]:
    """Yield the figures whose packages are installed, and say which are left out."""
    for name in names:
        if needs := _missing(name):
            print(f"{name}: left out, for {needs} is not installed (the extra [{needs}])")
        else:
            yield name


def _missing(name: str) -> str:
    """Return the package that a figure needs if it is not installed, which is an extra's name."""
    needs = str(getattr(figures.load(name), "NEEDS", ""))
    return needs if needs and find_spec(needs) is None else ""


def _make_all(names: Sequence[str], options: Options, stop_after: float | None) -> int:
    """Make figures and the index page; each is drawn while the next one is computed."""
    failures, left, clock = [], [], Clock(names)
    stop_at = time.monotonic() + (math.inf if stop_after is None else stop_after)
    drawing: dict[str, Future[None]] = {}
    with ThreadPoolExecutor(max_workers=1) as artist:
        for name in names:
            if time.monotonic() >= stop_at:
                left.append(f"{name}: not begun")
                continue
            said = f"{clock.announce(name)}: {figures.load(name).TITLE}"
            start = time.perf_counter()
            try:
                computed = compute(name, options)
                print(f"{said} ({f'{computed.seconds:.1f} s' if computed else 'kept'})", flush=True)
                if computed:
                    drawing[name] = artist.submit(draw, computed, options)
            except KeyboardInterrupt as interrupt:
                print(f"\nInterrupted in {name}: {interrupt}", file=sys.stderr)
                print("Finished cells are kept; the same command resumes there.", file=sys.stderr)
                return INTERRUPTED
            except SweepStopped as stop:
                left.append(f"{name}: {stop}")
            except Exception as error:
                failures.append(f"{name}: {_explain(error)}")
                if isinstance(error, OSError) and error.errno in NO_ROOM:
                    break  # the next figure would not fit either
            clock.finish(name, time.perf_counter() - start)
        for name, drawn in drawing.items():
            try:
                drawn.result()
            except Exception as error:
                failures.append(f"{name}: {_explain(error)}")
    try:
        print(f"Open {write_index(options.out, list(figures.FIGURES))}")
    except OSError as error:
        failures.append(f"index.html: {error}")
    if failures:
        print(f"\n{len(failures)} failed:", *failures, sep="\n  ", file=sys.stderr)
        return 1
    if left:
        print("\nThe time is over. The same command resumes; left:", *left, sep="\n  ")
        return STOPPED
    return 0


def _explain(error: Exception) -> str:
    """Print an error's traceback for developers and return its message for users."""
    if isinstance(error, SweepError):
        print(error.failures[0][1], file=sys.stderr)  # the traceback of the cell, not of the sweep
    elif not isinstance(error, OSError):
        traceback.print_exception(error)
    return f"{type(error).__name__}: {error}"


def _report(argv: Sequence[str]) -> int:
    """Write the tables of README and docs from the ledger."""
    parser = argparse.ArgumentParser(
        prog="python -m figures report",
        description="Write the tables of README.md and docs/*.md, and the pictures they show, from "
        "figures/results. Exit codes: 0 written, 1 where results are missing.",
    )
    parser.parse_args(argv)
    if not os.environ.get("DPANALYSIS_DATA"):  # captions name the authors' curves that are drawn
        parser.error("this needs the papers' data: set $DPANALYSIS_DATA")
    from . import _pages

    try:
        changed = _pages.write()
    except (OSError, ValueError, KeyError) as error:
        print(error, file=sys.stderr)
        return 1
    print(*(f"written: {path}" for path in changed), sep="\n")
    return 0


def _again(argv: Sequence[str]) -> int:
    """Recompute the stored results of unknown origin."""
    from . import _ledger

    parser = argparse.ArgumentParser(
        prog="python -m figures again",
        description="Recompute, at paper scale, the stored results of unknown origin "
        "(figures/results/waiting.json), those stored earliest first. Finished cells are kept "
        "under DIR/NAME/cells: the same command resumes. Once all cells of a figure are there, its "
        "tables are stored, and it is taken off the list. Tables need all cells, of which the "
        "ledger has digests, so cells of known origin are computed, too, where they are not kept, "
        "and compared. Exit codes as of `python -m figures`.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures (default: all that wait)")
    parser.add_argument("--list", action="store_true", help="list what waits, and stop")
    parser.add_argument(
        "--at-most",
        type=_seconds,
        default=math.inf,
        metavar="S",
        help="skip figures that took more than S seconds of one core",
    )
    parser.add_argument("--stop-after", type=_seconds, metavar="S", help="start no cell after S s")
    parser.add_argument("--jobs", type=_jobs, default=-1, metavar="N", help="cells at once")
    parser.add_argument("--device", metavar="D", help="where networks are trained: cpu, cuda")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).with_name("output"), metavar="DIR"
    )
    arguments = parser.parse_args(argv)
    _check_names(parser, arguments.names)
    names = _provenance.oldest_first(arguments.names or list(_provenance.waiting()))
    abouts = {name: _ledger.read_about(name) for name in names}
    names = [name for name in names if abouts[name]["core_seconds"] <= arguments.at_most]
    for name in names:
        unknown, total = _provenance.unknown_cells(name)
        cost = f"{abouts[name]['core_seconds'] / 60.0:.1f} minutes of one core"
        print(f"{name}: {unknown} of {total} {'wait' if unknown else 'wait: all is known'}, {cost}")
    if arguments.list:
        return 0
    if not os.environ.get("DPANALYSIS_DATA"):
        parser.error("this needs the papers' data: set $DPANALYSIS_DATA")
    _need_a_clean_commit(parser)
    if arguments.device:
        os.environ["DPANALYSIS_DEVICE"] = arguments.device
    options = Options(
        out=arguments.out,
        scale="paper",
        jobs=arguments.jobs,
        progress=not arguments.quiet,
        store=True,
        restore=False,
    )
    for name in names:
        _provenance.forget_unknown(name, arguments.out / name / "cells")
    before = {name: _ledger.read_cells(name) for name in names}
    with sweeping(stop_after=arguments.stop_after):
        code = _make_all(names, options, arguments.stop_after)
    for name in names:
        if _ledger.read_about(name) != abouts[name]:
            print(f"{name}: {_compared(before[name], _ledger.read_cells(name))}")
    left = _provenance.write_list()
    print(f"{sum(left.values())} cells of {len(left)} figures wait")
    return code


def _compared(before: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]]) -> str:
    """Return how many cells reproduce the results that were stored before."""
    from . import _ledger

    old, new = ({_ledger.call(row): row for row in rows} for rows in (before, now))
    both = [(old[call], row) for call, row in new.items() if call in old]
    same = sum(a["digest"] == b["digest"] for a, b in both)
    close = sum(close_row(a, b) for a, b in both)
    return (
        f"of {len(both)} cells that were stored before, {same} agree to the last bit and {close} "
        f"within the tolerance for other machines; {len(new) - len(both)} are new"
    )


def _verify(argv: Sequence[str]) -> int:
    """Recompute some stored results and compare."""
    from . import _ledger
    from ._verify import verify

    parser = argparse.ArgumentParser(
        prog="python -m figures verify",
        description="Recompute random cells of the stored results, and compare: to the last "
        f"bit on the same versions and processor, to {TOLERANCE:g} (relative) elsewhere, or to "
        "the tolerance that a figure states if its cells let rounding grow. Refuses results of "
        "unknown origin, except those that wait to be recomputed. Exit codes: 0 they "
        "agree, 1 something differs, 2 bad arguments.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures (default: all stored)")
    parser.add_argument("--cells", type=_jobs, default=2, metavar="K", help="cells of each figure")
    parser.add_argument(
        "--all", action="store_true", help="all cells, and the tables made of them: takes hours"
    )
    parser.add_argument(
        "--at-most",
        type=_seconds,
        default=math.inf,
        metavar="S",
        help="skip cells that took more than S seconds",
    )
    parser.add_argument("--jobs", type=_jobs, default=-1, metavar="N", help="with --all")
    parser.add_argument("--seed", type=int, help="of the random choice; printed for repetition")
    arguments = parser.parse_args(argv)
    _check_names(parser, arguments.names)
    stored = _ledger.stored()
    missing = [name for name in arguments.names if name not in stored]
    if missing:
        parser.error(f"no results of {', '.join(missing)} in {_ledger.RESULTS}")
    entropy = np.random.SeedSequence().entropy if arguments.seed is None else arguments.seed
    seed = entropy if arguments.seed is not None else int(entropy) % 10**6
    random = np.random.default_rng(seed)
    differ = 0
    listed = _provenance.listed()
    for name in arguments.names or stored:
        unknown, total = _provenance.unknown_cells(name)
        if unknown:
            print(f"{name}: what made {unknown} of {total} is unknown: python -m figures again")
            differ += unknown > listed.get(name, 0)
        count = None if arguments.all else arguments.cells
        if needs := _missing(name):
            print(f"{name}: left alone, needs {needs}")
            continue
        try:
            differences, found = verify(name, count, arguments.at_most, random, arguments.jobs)
        except FileNotFoundError as error:
            print(f"{name}: left alone, {error}")
            continue
        if not found:
            print(f"{name}: not looked at, everything takes more than {arguments.at_most:g} s")
            continue
        differ += len(differences)
        print(f"{name}: {found}: {'DIFFERS' if differences else 'agrees'}", flush=True)
        print(*(f"  {line}" for line in differences), sep="\n", end="\n" if differences else "")
    print(f"{differ} differences (--seed {seed})")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
