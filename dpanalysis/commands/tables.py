"""``python -m dpanalysis fit``, ``predict``, ``evaluate`` and ``domain``: CSV files in and out."""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from .csv_files import Block, CsvFile

__all__ = ["add", "run"]

EXAMPLE = """
examples:
  python -m dpanalysis domain train.csv -o domain.toml      then fill in the ranges
  python -m dpanalysis fit train.csv --label income --domain domain.toml --epsilon 1 \\
      --out model.json --card card.html
  python -m dpanalysis predict new.csv --model model.json -o predictions.csv
  python -m dpanalysis evaluate test.csv --model model.json --label income
"""

NOT_PRIVATE = (
    "These scores are exact: they are NOT private. Compute them on public data, or keep them."
)


def add(commands: Any) -> None:
    """Add the four commands to the parser."""
    parts = {
        "fit": "fit a private classifier to a CSV file",
        "predict": "write the predictions of a model for a CSV file",
        "evaluate": "score a model on a CSV file; scores are not private",
        "domain": "write a template of the columns' domains, to be filled in",
    }
    for name, purpose in parts.items():
        parser = commands.add_parser(
            name, help=purpose, description=purpose.capitalize() + ".", epilog=EXAMPLE,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        parser.add_argument("file", type=Path, metavar="CSV", help="with a header line, UTF-8")
        parser.add_argument("--delimiter", default=",", help="default: a comma")
        if name in ("predict", "evaluate"):
            parser.add_argument("--model", type=Path, required=True, metavar="JSON")
        if name in ("fit", "evaluate"):
            parser.add_argument("--label", required=True, metavar="COLUMN")
        if name in ("predict", "domain"):
            parser.add_argument(
                "-o", "--out", type=Path, metavar="FILE", help="instead of the screen"
            )
        if name == "fit":
            _add_fit(parser)


def _add_fit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--domain", type=Path, required=True, metavar="TOML")
    parser.add_argument("--epsilon", type=float, required=True)
    parser.add_argument("--delta", type=float, default=0.0, help="default: 0, the pure guarantee")
    parser.add_argument("--out", type=Path, required=True, metavar="JSON", help="the model")
    parser.add_argument("--card", type=Path, metavar="HTML", help="the model card as a page")
    parser.add_argument(
        "--kind", choices=("logistic", "svm"), default="logistic", help="default: %(default)s"
    )
    parser.add_argument(
        "--relation",
        choices=("replace_one", "add_or_remove_one"),
        default="replace_one",
        help="neighbouring data sets; default: %(default)s",
    )
    parser.add_argument(
        "--size", type=int, help="public nominal number of rows; default: that of the file"
    )
    parser.add_argument("--seed", type=int, help="repeatable noise: for research, not for release")
    parser.add_argument("--force", action="store_true", help="replace an older model")


def run(arguments: argparse.Namespace, fail: Callable[[str], Any]) -> int:
    """Run a command; ``fail`` ends with a message about the arguments or the data."""
    try:
        return _COMMANDS[arguments.command](arguments)
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except (ValueError, TypeError) as error:
        fail(str(error))
    except ImportError as error:
        fail(f"scikit-learn is needed: pip install 'dpanalysis-toolkit[sklearn]' ({error})")
    return 2


def _fit(arguments: argparse.Namespace) -> int:
    from ..linear_model import LinearSVC, LogisticRegression, save
    from ..linear_model.stream import fit_blocks
    from ..preprocessing.domain import read_domain
    from ..preprocessing.encoder import PublicEncoder

    for path in (arguments.out, arguments.card):
        _check_output(path, arguments.force)
    domain, classes = read_domain(arguments.domain)
    if arguments.label in domain:
        raise ValueError(f"{arguments.domain}: the label {arguments.label!r} must have no domain")
    file = CsvFile(arguments.file, arguments.delimiter)
    file.require([*domain, arguments.label])
    kind = LogisticRegression if arguments.kind == "logistic" else LinearSVC
    model = kind(
        arguments.epsilon,
        arguments.delta,
        classes=classes or None,
        relation=arguments.relation,
        size=arguments.size,
        random_state=arguments.seed,
    )
    model._budget(1)  # a wrong number shows before the file is read
    encoder = PublicEncoder.from_dict({"domain": domain, "columns": list(domain)})
    with _Lines(file) as lines:
        fit_blocks(model, encoder, lines.labelled(list(domain), arguments.label, classes))
    from sklearn.pipeline import Pipeline

    save(Pipeline([("encoder", encoder), ("model", model)]), arguments.out)
    if arguments.card:
        arguments.card.write_text(model.privacy_.to_html(), encoding="utf-8")
    print(model.privacy_)
    return 0


def _predict(arguments: argparse.Namespace) -> int:
    encoder, model, file = _opened(arguments)
    many = hasattr(model, "predict_proba")
    with ExitStack() as stack:
        out = sys.stdout
        if arguments.out:
            out = stack.enter_context(open(arguments.out, "w", newline="", encoding="utf-8"))
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["prediction", *(f"p({c})" for c in model.classes_ if many)])
        for block in stack.enter_context(_Lines(file)):
            rows = encoder.transform(block.only(encoder.feature_names_in_))
            found = [model.predict(rows).tolist()]
            if many:
                found += [[f"{p:.6g}" for p in column] for column in model.predict_proba(rows).T]
            writer.writerows(zip(*found))
    return 0


def _evaluate(arguments: argparse.Namespace) -> int:
    from sklearn.metrics import log_loss, roc_auc_score

    encoder, model, file = _opened(arguments)
    file.require([arguments.label])
    known = {str(c) for c in model.classes_}
    labels, guesses, scores = [], [], []
    with _Lines(file) as lines:
        for table, part in lines.labelled(
            list(encoder.feature_names_in_), arguments.label, sorted(known)
        ):
            rows = encoder.transform(table)
            labels.append(part)
            guesses.append(model.predict(rows).astype(str))
            scores.append(model.decision_function(rows))
    if not labels:
        raise ValueError(f"{arguments.file}: there are no rows")
    y, guess, score = (np.concatenate(parts) for parts in (labels, guesses, scores))
    print(f"rows: {len(y)}")
    print(f"accuracy: {np.mean(y == guess):.4f}")
    largest = float(np.unique(y, return_counts=True)[1].max() / len(y))
    print(f"accuracy of the largest class alone: {largest:.4f}")
    if score.ndim == 1 and len(set(y.tolist())) == 2:
        positive = y == str(model.classes_[1])
        print(f"area under the curve: {roc_auc_score(positive, score):.4f}")
        if hasattr(model, "predict_proba"):
            print(f"log loss: {log_loss(positive, 1.0 / (1.0 + np.exp(-score))):.4f}")
    print(NOT_PRIVATE)
    return 0


def _domain(arguments: argparse.Namespace) -> int:
    from ..preprocessing.domain import template

    text = template(CsvFile(arguments.file, arguments.delimiter).names)
    if arguments.out is None:
        print(text, end="")
    elif arguments.out.exists():
        raise ValueError(f"{arguments.out} is there already: it may be filled in")
    else:
        arguments.out.write_text(text, encoding="utf-8")
    return 0


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "fit": _fit,
    "predict": _predict,
    "evaluate": _evaluate,
    "domain": _domain,
}


def _check_output(path: Path | None, force: bool) -> None:
    """Raise where a result could not be written: before anything is spent."""
    if path is None:
        return
    if not path.resolve().parent.is_dir():
        raise ValueError(f"there is no folder {path.resolve().parent}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder")
    if path.exists() and not force:
        raise ValueError(f"{path} is there already: --force replaces it")


def _opened(arguments: argparse.Namespace) -> tuple[Any, Any, CsvFile]:
    """Return encoder, model and file, whose columns are those of the encoder."""
    from ..linear_model import load

    loaded = load(arguments.model)
    if not hasattr(loaded, "steps"):
        raise ValueError(f"{arguments.model}: the model has no encoder, so it takes no CSV file")
    encoder, model = (step for _, step in loaded.steps)
    file = CsvFile(arguments.file, arguments.delimiter)
    file.require(list(encoder.feature_names_in_))
    return encoder, model, file


class _Lines:
    """The blocks of a file; an error about a row of a block becomes one about a line."""

    def __init__(self, file: CsvFile) -> None:
        self._file, self._block = file, Block({}, [])

    def __iter__(self) -> Iterator[Block]:
        for block in self._file.blocks():
            self._block = block
            yield block

    def labelled(
        self, names: list[str], label: str, classes: list[str]
    ) -> Iterator[tuple[Block, np.ndarray]]:
        """Yield the columns of a model, and the labels as words."""
        for block in self:
            labels = [cell.strip() for cell in block[label]]
            for line, cell in zip(block.lines, labels):
                if not cell or (classes and cell not in classes):
                    expected = f"one of {', '.join(map(repr, classes))}" if classes else "a label"
                    raise ValueError(
                        f"{self._file.path}, line {line}, column {label!r}: expected {expected}, "
                        f"got {cell!r}"
                    )
            yield block.only(names), np.array(labels)

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        place = getattr(error, "place", None)
        if place is not None:
            row, column, value, expected = place
            raise ValueError(
                f"{self._file.path}, line {self._block.lines[row]}, column {column!r}: expected "
                f"{expected}, got {value!r}"
            ) from None
