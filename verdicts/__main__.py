"""Check what released libraries claim in their documentation: ``python -m verdicts``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dpanalysis.__main__ import INTERRUPTED, check_output, write_table

if TYPE_CHECKING:
    from dpanalysis.papers.report import Table

EXAMPLES = """
examples:
  python -m verdicts --list
  python -m verdicts --quick
  python -m verdicts diffprivlib opacus==1.6.0
  python -m verdicts --store figures/results/packages --missing
  python -m verdicts --module my_claims    claims of my_claims.py in this folder

docs/packages.md says how the checks work, how to add one, and whom to tell before publishing.
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m verdicts",
        description="Check what released libraries claim in their documentation: each is "
        "installed in its own environment and tested from outside. Exit status 1 if a "
        "verdict is not the expected one, 2 if an argument is wrong.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "packages",
        nargs="*",
        metavar="NAME[==VERSION]",
        help="only these packages; a version other than the recorded one has no expected verdict",
    )
    parser.add_argument(
        "--id", action="append", dest="ids", default=[], metavar="ID", help="only this claim"
    )
    parser.add_argument(
        "--module",
        action="append",
        dest="modules",
        default=[],
        metavar="NAME",
        help="import this module with your own claims (repeatable)",
    )
    parser.add_argument("--list", action="store_true", help="list the claims and check none")
    parser.add_argument("--quick", action="store_true", help="fewer runs: minutes")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the outcomes as JSON")
    form.add_argument("--html", action="store_true", help="a web page")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write there instead of to the screen"
    )
    parser.add_argument(
        "--store",
        type=Path,
        metavar="DIR",
        help="replace each claim's rows in verdicts.csv and evidence.csv there once it is checked",
    )
    parser.add_argument(
        "--missing",
        action="store_true",
        help="only claims of which --store has no row of this release and of a run that is not "
        "quick: an interrupted run resumes",
    )
    parser.add_argument(
        "--environments",
        type=Path,
        metavar="DIR",
        help="folder of the environments; by default in the user's cache folder",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: no claim failed; 1: some did; 2: bad arguments; 130: Ctrl-C.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    check_output(arguments, parser)
    try:
        table = _checked(arguments, parser)
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return INTERRUPTED
    return 0 if table is None else write_table(table, arguments)


def _checked(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> Table | None:
    """Check the claims and store the table, or list the claims and return None."""
    from . import registry
    from .store import missing

    if arguments.modules and not {"", str(Path.cwd())} & set(sys.path):
        sys.path.insert(0, str(Path.cwd()))
    for option in ("store", "environments"):
        folder = getattr(arguments, option)
        if folder and folder.exists() and not folder.is_dir():
            parser.error(f"--{option} must be a folder, got the file {folder}")
    try:
        statements = registry.chosen(
            arguments.packages, ids=arguments.ids, modules=arguments.modules
        )
    except (ImportError, TypeError, ValueError) as error:
        parser.error(str(error))
    if arguments.missing:
        if not arguments.store:
            parser.error("--missing needs --store")
        wanted = missing(arguments.store, statements)
        statements = [pair for pair in statements if pair[0].id in wanted]
    if arguments.list:
        for statement, package in statements:
            name = registry.SHOWN.get(statement.verdict, statement.verdict)
            print(f"{statement.id}  {package.name}=={package.version}  {name}  {statement.source}")
        return None
    if not statements:
        print("Nothing is missing.")
        return None
    return registry.verdicts(
        arguments.packages,
        ids=[statement.id for statement, _ in statements],
        modules=arguments.modules,
        quick=arguments.quick,
        environments=arguments.environments,
        store=arguments.store,
        progress=not arguments.quiet,
    )


if __name__ == "__main__":
    sys.exit(main())
