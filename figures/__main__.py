"""Command line: ``python -m figures [names] [--scale quick|paper] [--jobs N] [--backend B]``."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import figures
from dpanalysis import plotting
from dpanalysis.experiments.workers import check_backend, configured

from ._report import write_figure, write_index

INTERRUPTED = 130  # the shell's code for a process ended by Ctrl-C


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m figures",
        description="Make the papers' figures and tables: PNG, PDF, CSV with settings, and an "
        "index.html that shows them all.",
        epilog="Finished cells of long experiments are kept under DIR/NAME/cells: an interrupted "
        "run goes on where it stopped. Real data are looked for in $DPANALYSIS_DATA. "
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
        help="cells at once; -1, the default, for one a core; results do not depend on it",
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
        "--fresh", action="store_true", help="forget the kept cells of these figures first"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    parser.add_argument("--list", action="store_true", help="list the figures and stop")
    return parser


def _jobs(text: str) -> int:
    value = int(text)
    if value != -1 and value < 1:
        raise argparse.ArgumentTypeError(f"must be -1 or at least 1, got {value}")
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


def _make(name: str, arguments: argparse.Namespace) -> None:
    """Compute, draw and write one figure."""
    start = time.perf_counter()
    module = figures.load(name)
    folder = arguments.out / name
    cache = folder / "cells"
    if arguments.fresh and cache.exists():
        shutil.rmtree(cache)
    tables = module.compute(
        arguments.scale, jobs=arguments.jobs, cache=cache, progress=not arguments.quiet
    )
    with plotting.style():
        picture = module.draw(tables)
    seconds = time.perf_counter() - start
    write_figure(
        folder,
        name,
        module.TITLE,
        arguments.scale,
        module.settings(arguments.scale),
        tables,
        picture,
        module.caption(tables, arguments.scale),
        seconds,
    )
    print(f"{name}: {module.TITLE} ({seconds:.1f} s)", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: all made; 1: some failed (the others are made); 2: bad arguments; 130: Ctrl-C.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    unknown = [name for name in arguments.names if name not in figures.FIGURES]
    if unknown:
        parser.error(f"unknown figure {', '.join(unknown)}; known: {', '.join(figures.FIGURES)}")
    if arguments.list:
        width = max(map(len, figures.FIGURES))
        for name in figures.FIGURES:
            print(f"{name:{width}}  {figures.load(name).TITLE}")
        return 0
    try:
        check_backend(arguments.backend)
    except (ValueError, ImportError) as error:
        parser.error(str(error))
    failures = []
    with _workers(arguments.backend, arguments.jobs):
        for name in arguments.names or figures.FIGURES:
            try:
                _make(name, arguments)
            except KeyboardInterrupt as interrupt:
                print(f"\nInterrupted in {name}: {interrupt}", file=sys.stderr)
                print("Finished cells are kept; the same command goes on there.", file=sys.stderr)
                return INTERRUPTED
            except Exception as error:
                traceback.print_exc()
                failures.append(f"{name}: {type(error).__name__}: {error}")
    index = write_index(arguments.out, figures.FIGURES)
    print(f"Open {index}")
    if failures:
        print(f"\n{len(failures)} failed:", *failures, sep="\n  ", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
