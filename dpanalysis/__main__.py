"""Command line: ``python -m dpanalysis claims``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

INTERRUPTED = 130  # the shell's code for a process ended by Ctrl-C


def _parser() -> argparse.ArgumentParser:
    from .audit.registry import PAPERS

    parser = argparse.ArgumentParser(
        prog="python -m dpanalysis",
        description="Differentially private first-order optimisation that a researcher can trust.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    claims = commands.add_parser(
        "claims",
        help="check every claim of the papers, and every bound relied on, by machine",
        description="Check every claim of the papers, and every bound relied on: recompute the "
        "evidence, derive the verdict, print the table. Exit status 1 if a verdict is not the "
        "expected one.",
        epilog="Examples: python -m dpanalysis claims --quick; python -m dpanalysis claims "
        "--paper 002; python -m dpanalysis claims --id 001-9 --id 001-10; python -m dpanalysis "
        "claims --html -o claims.html",
    )
    claims.add_argument("--paper", choices=tuple(PAPERS), help="only the claims of this paper")
    claims.add_argument(
        "--id", action="append", dest="ids", metavar="ID", help="only this claim (repeatable)"
    )
    claims.add_argument(
        "--quick", action="store_true", help="search fewer cases: under a minute on two cores"
    )
    form = claims.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the outcomes as JSON")
    form.add_argument("--html", action="store_true", help="a web page")
    form.add_argument("--errata", action="store_true", help="Markdown: the text of ERRATA.md")
    claims.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write there instead of to the screen"
    )
    claims.add_argument(
        "--jobs",
        type=_jobs,
        default=-1,
        metavar="N",
        help="processes at once; -1, the default, for one a core; results do not depend on it",
    )
    claims.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser


def _jobs(text: str) -> int:
    if text.lstrip("-").isdigit() and ((value := int(text)) == -1 or value >= 1):
        return value
    raise argparse.ArgumentTypeError(f"must be -1 or an integer of at least 1, got {text!r}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: no claim failed; 1: some did; 2: bad arguments; 130: Ctrl-C.
    """
    parser = _parser()
    if not (sys.argv[1:] if argv is None else argv):
        parser.print_help(sys.stderr)
        return 2
    arguments = parser.parse_args(argv)
    from .audit import registry, report

    known = [claim.id for claim in registry.load(arguments.paper)]
    unknown = [name for name in arguments.ids or () if name not in known]
    if unknown:
        parser.error(f"unknown id {', '.join(unknown)}; known: {', '.join(known)}")
    if arguments.output and not arguments.output.resolve().parent.is_dir():
        parser.error(f"--output: there is no folder {arguments.output.resolve().parent}")
    if arguments.output and arguments.output.is_dir():
        parser.error(f"--output must be a file, got the folder {arguments.output}")
    try:
        table = registry.claims(
            arguments.paper,
            ids=arguments.ids,
            quick=arguments.quick,
            jobs=arguments.jobs,
            progress=not arguments.quiet,
        )
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return INTERRUPTED
    if arguments.json:
        text = report.to_json(table)
    elif arguments.html:
        text = report.to_html(table)
    elif arguments.errata:
        text = report.to_errata(table)
    else:
        text = report.to_text(table)
    if arguments.output:
        arguments.output.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
        print(report.summary(table), file=sys.stderr)
    else:
        print(text.rstrip("\n"))
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
