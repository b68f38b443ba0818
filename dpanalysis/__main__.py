"""Command line of ``python -m dpanalysis``: ``claims``, ``account``, and those for CSV files."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from . import __version__

if TYPE_CHECKING:
    from .papers.claim import Claim
    from .papers.report import Table

INTERRUPTED = 130  # shells' exit code for a process ended by Ctrl-C

EXAMPLES = """
examples:
  python -m dpanalysis claims --quick
  python -m dpanalysis claims --paper Kuru            the same: --paper 'Kuru 2022', --paper 001
  python -m dpanalysis claims --id 001-9 --id 001-10
  python -m dpanalysis claims --html -o claims.html
  python -m dpanalysis claims --adversary             whether the corrections stand
  python -m dpanalysis claims --coverage              every numbered statement, in one line each
  python -m dpanalysis claims --module my_paper       the claims of my_paper.py in this folder

Your module registers a paper, and its claims with the checks that decide them:

  from dpanalysis import audit

  audit.register(audit.Paper(id="900", authors="Doe, Roe", year=2025, title="On variances"))

  @audit.register("900-1", "Lemma 2", "Laplace noise of scale b has variance b^2",
                  "its variance is 2 b^2", verdict="corrected")
  def laplace_variance(effort):
      n = effort.cases(10_000, 1_000_000)  # quick, full
      variance = effort.random().laplace(scale=3.0, size=n).var()
      yield audit.printed("variance / b^2", variance / 9, "==", 1, tolerance=0.2, cases=n)
      yield audit.used("variance / b^2", variance / 9, "==", 2, tolerance=0.2, cases=n)
"""

ACCOUNT_EXAMPLES = """
examples:
  python -m dpanalysis account --noise-multiplier 1 --sampling shuffle --batches 100 --epochs 10 \\
      --delta 1e-5
  python -m dpanalysis account --noise-multiplier 1.1 --sampling poisson --n 60000 \\
      --batch-size 256 --steps 3000 --delta 1e-6
  python -m dpanalysis account --noise-multiplier 2 --sampling "balls in bins" --batches 50 \\
      --epochs 20 --delta 1e-5
  python -m dpanalysis account --epsilon 3 --sampling poisson --rate 0.01 --epochs 10 --delta 1e-5
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dpanalysis",
        description="Differentially private first-order optimization that a researcher can trust.",
    )
    parser.add_argument("--version", action="version", version=f"dpanalysis {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_claims(
        subparsers.add_parser(
            "claims",
            help="check every claim of the papers, and every bound relied on, by machine",
            description="Check every claim of the papers, and every bound relied on: recompute "
            "the evidence, derive the verdict, print the table. Exit status 1 if a verdict is not "
            "the expected one, 2 if an argument is wrong.",
            epilog=EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    _add_account(
        subparsers.add_parser(
            "account",
            help="what a run of DP-SGD costs, whichever way its batches were drawn",
            description="What a run of DP-SGD costs, whichever way its batches were drawn: an "
            "upper bound on epsilon, a lower bound, and what an accountant for Poisson sampling "
            "would have said.",
            epilog=ACCOUNT_EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    from . import commands

    commands.add(subparsers)
    for command in subparsers.choices.values():
        command.allow_abbrev = False  # "--target y" must not be read as --target-bounds
    return parser


def _add_account(account: argparse.ArgumentParser) -> None:
    account.add_argument(
        "--noise-multiplier",
        type=float,
        metavar="SIGMA",
        help="standard deviation of the noise on a batch's sum of gradients, over the clip norm",
    )
    account.add_argument(
        "--epsilon", type=float, help="in place of SIGMA: the least one for this bound is found"
    )
    account.add_argument(
        "--sampling",
        required=True,
        metavar="WORDS",
        help="poisson, shuffle, 'balls in bins', 'random allocation', 'fixed size', "
        "'with replacement', cyclic or full",
    )
    account.add_argument("--n", type=int, help="number of records")
    account.add_argument("--batch-size", type=int, metavar="M", help="with --n")
    account.add_argument(
        "--rate", type=float, metavar="Q", help="chance of a record to be in a batch, of poisson"
    )
    account.add_argument("--batches", type=int, metavar="T", help="of one epoch")
    account.add_argument("--epochs", type=int, metavar="E", help="this or --steps")
    account.add_argument("--steps", type=int, metavar="STEPS", help="this or --epochs")
    account.add_argument(
        "--times",
        type=int,
        default=1,
        metavar="K",
        help="in how many batches of an epoch a record is, of 'random allocation'; default: 1",
    )
    account.add_argument("--delta", type=float, required=True)
    account.add_argument(
        "--relation",
        choices=("add_or_remove_one", "replace_one"),
        default="add_or_remove_one",
        help="neighbours for whom the bounds are; default: %(default)s, or, where the sampling "
        "fixes the number of records, one replaced",
    )
    account.add_argument("--json", action="store_true", help="the result as JSON")


def _add_claims(claims: argparse.ArgumentParser) -> None:
    claims.add_argument(
        "--paper", metavar="PAPER", help="only the claims of this paper: id, label or first author"
    )
    claims.add_argument(
        "--id", action="append", dest="ids", metavar="ID", help="only this claim (repeatable)"
    )
    claims.add_argument(
        "--module",
        action="append",
        dest="modules",
        default=[],
        metavar="NAME",
        help="only the claims that this module or package registers, which is imported; this "
        "folder is searched too (repeatable)",
    )
    claims.add_argument(
        "--quick", action="store_true", help="search fewer cases: about a minute on two cores"
    )
    claims.add_argument(
        "--adversary",
        action="store_true",
        help="instead of the checks run the arguments for the papers, against every correction: "
        "it stands if the hypotheses hold and the statement, read favorably, is violated; exit "
        "status 1 if one falls or has no adversary",
    )
    claims.add_argument(
        "--coverage",
        action="store_true",
        help="list every numbered statement, figure, table and headline of the papers with the "
        "claims that decide it, or why none does; checks nothing (with --paper, --json, "
        "--markdown)",
    )
    form = claims.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="of --coverage: tables in Markdown")
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


def _jobs(text: str) -> int:
    if text.lstrip("-").isdigit() and ((value := int(text)) == -1 or value >= 1):
        return value
    raise argparse.ArgumentTypeError(f"must be -1 or an integer of at least 1, got {text!r}")


def _known(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> list[Claim]:
    """Return the claims to select from; exit with an error for invalid arguments."""
    from .papers import registry

    registry.load()  # first, so that an error here is the package's, not the user's modules'
    if arguments.modules and not {"", str(Path.cwd())} & set(sys.path):
        sys.path.insert(0, str(Path.cwd()))
    try:
        return registry.load(arguments.paper, module=arguments.modules)
    except (ImportError, TypeError, ValueError) as error:
        parser.error(str(error))


def _without_exponent(text: str) -> str:
    """Return -1e3 as -1000, which argparse does not mistake for an option."""
    return format(Decimal(text), "f") if re.fullmatch(r"-\d+\.?\d*[eE][-+]?\d{1,3}", text) else text


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, 1 if a claim failed, 2 for bad arguments, 130 on Ctrl-C."""
    try:
        return _run(argv)
    except BrokenPipeError:  # the reader of the output has exited
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(argv: Sequence[str] | None) -> int:
    """Run the command line, see :func:`main`."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["packages"]:
        return _packages(given[1:])
    parser = _parser()
    if not given:
        parser.print_help(sys.stderr)
        return 2
    arguments = parser.parse_args(list(map(_without_exponent, given)))
    if arguments.command == "account":
        return _account(arguments, parser)
    if arguments.command != "claims":
        from . import commands

        return commands.run(arguments, parser.error)
    if arguments.markdown and not arguments.coverage:
        parser.error("--markdown belongs to --coverage")
    if arguments.errata and arguments.adversary:
        parser.error("--errata does not go with --adversary")
    if arguments.coverage:
        return _coverage(arguments, parser)
    check_output(arguments, parser)
    try:
        table = _checked(arguments, parser)
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return INTERRUPTED
    return write_table(table, arguments)


def _account(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Print the cost of a run of DP-SGD."""
    from . import accounting

    given = {name: value for name, value in vars(arguments).items() if name != "command"}
    as_json = given.pop("json")
    try:
        found = accounting(given.pop("noise_multiplier"), **given)
        print(json.dumps(found.to_dict(), indent=2) if as_json else found)
    except (TypeError, ValueError) as error:
        parser.error(str(error))
    return 0


def _packages(arguments: Sequence[str]) -> int:
    """Run ``python -m verdicts``, formerly the command ``packages``."""
    print("python -m dpanalysis packages is now python -m verdicts", file=sys.stderr)
    try:
        from verdicts.__main__ import main as verdicts
    except ModuleNotFoundError:
        print("verdicts/ is in a checkout of the repository: run it there", file=sys.stderr)
        return 2
    return verdicts(arguments)


def write_table(table: Table, arguments: argparse.Namespace) -> int:
    """Write a table of verdicts in the requested format, and return the exit code."""
    from .papers import report

    _put(_text(table, arguments), report.summary(table), arguments)
    return 1 if table.failed else 0


def check_output(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Exit with an error if the output cannot be written."""
    if arguments.output and not arguments.output.resolve().parent.is_dir():
        parser.error(f"--output: there is no folder {arguments.output.resolve().parent}")
    if arguments.output and arguments.output.is_dir():
        parser.error(f"--output must be a file, got the folder {arguments.output}")


def _put(text: str, summary: str, arguments: argparse.Namespace) -> None:
    """Write a text to the output file and a summary to stderr, or print the text."""
    if arguments.output:
        arguments.output.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
        print(summary, file=sys.stderr)
    else:
        print(text.rstrip("\n"), flush=True)


def _coverage(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """List the numbered statements of the papers and the claims that check them."""
    from .papers import coverage

    names = ("ids", "modules", "html", "errata", "adversary")
    others = [name for name in names if getattr(arguments, name)]
    if others:
        listed = ", ".join(f"--{name.removesuffix('s')}" for name in others)
        parser.error(f"--coverage does not go with {listed}")
    check_output(arguments, parser)
    found = coverage.items(arguments.paper)
    write = coverage.to_json if arguments.json else coverage.to_text
    write = coverage.to_markdown if arguments.markdown else write
    _put(write(found), coverage.summary(found), arguments)
    return 0


def _checked(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> Table:
    """Run the selected claims and return their table."""
    from .papers import registry

    known = [claim.id for claim in _known(arguments, parser)]
    unknown = [name for name in arguments.ids or () if name not in known]
    if unknown:
        parser.error(f"unknown id {', '.join(unknown)}; known: {', '.join(known)}")
    chosen = registry.claims(arguments.paper, ids=arguments.ids, module=arguments.modules)
    return chosen.run(
        quick=arguments.quick,
        adversary=arguments.adversary,
        jobs=arguments.jobs,
        progress=not arguments.quiet,
    )


def _text(table: Table, arguments: argparse.Namespace) -> str:
    from .papers import report

    if arguments.json:
        return report.to_json(table)
    if arguments.html:
        return report.to_html(table)
    if getattr(arguments, "errata", False):
        return report.to_errata(table)
    return report.to_text(table)


if __name__ == "__main__":
    sys.exit(main())
