"""Commands ``fit``, ``predict``, ``evaluate`` and ``domain``: private linear models for CSV files.

Files are read in chunks of rows, and errors name the line and the column.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
import os
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from .datasets.tables import delimiter_hint, different_names

_ROWS = 10_000  # per chunk
_MOST_LABELS = 20  # distinct labels that may be classes without being declared


@dataclass(frozen=True)
class RowChunk:
    """Chunk of rows: cells by column, and the line of the file on which each row ends."""

    cells: dict[str, list[str]]
    lines: list[int]

    @property
    def columns(self) -> list[str]:
        """Names of the columns, as in a DataFrame."""
        return list(self.cells)

    def __getitem__(self, name: str) -> list[str]:
        return self.cells[name]

    def only(self, names: Sequence[str]) -> RowChunk:
        """Return the chunk restricted to some columns."""
        return RowChunk({name: self.cells[name] for name in names}, self.lines)


class CsvFile:
    """CSV file with a header, plain or ``.gz``: UTF-8, with or without a byte order mark."""

    def __init__(self, path: str | os.PathLike[str], delimiter: str = ",") -> None:
        self.path, self._delimiter = path, delimiter
        if os.path.exists(path) and not os.path.isfile(path):
            raise ValueError(
                f"{path}: not a file: save it first (it is read twice, a pipe can be once)"
            )
        with self._open() as file:
            header = next(self._rows(file), None)
        if header is None:
            raise ValueError(f"{path}: expected a header line, got an empty file")
        self.names = [name.strip() for name in header[1]]
        for j, name in enumerate(self.names):
            if not name:
                raise ValueError(f"{path}: column {j + 1} of the header has no name")
        different_names(path, self.names)

    def _open(self) -> Any:
        opener: Any = gzip.open if str(self.path).endswith(".gz") else open
        return opener(self.path, "rt", encoding="utf-8-sig", newline="")

    def _rows(self, file: Any) -> Iterator[tuple[int, list[str]]]:
        """Yield the line number and the fields of every row that is not blank."""
        reader = csv.reader(file, delimiter=self._delimiter, skipinitialspace=True, strict=True)
        begun = 1
        while True:
            try:
                for row in reader:
                    begun = reader.line_num + 1
                    if row:
                        yield reader.line_num, row
                return
            except csv.Error as error:
                more = f" (the record begins in line {begun})" if begun < reader.line_num else ""
                if reader.line_num == 1:
                    with self._open() as again:
                        more = delimiter_hint([again.readline()], "--delimiter", self._delimiter)
                raise ValueError(f"{self.path}, line {reader.line_num}: {error}{more}") from None
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise ValueError(f"{self.path}: not a whole gzip file ({error})") from None
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{self.path}, line {self._line_of(error)}: not UTF-8 ({error.reason}); save "
                    "the file as UTF-8"
                ) from None

    def _line_of(self, error: UnicodeDecodeError) -> int:
        """Return the first line that has the bytes of an error: text is decoded ahead of rows."""
        opener: Any = gzip.open if str(self.path).endswith(".gz") else open
        with opener(self.path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError:
                    return number
        raise error

    def delimiter_hint(self) -> str:
        """Return a hint for an error message if the header suggests another delimiter, else ""."""
        return delimiter_hint(self.names, "--delimiter", self._delimiter)

    def require(self, names: Sequence[str]) -> None:
        """Raise ValueError unless there are columns of these names."""
        for name in names:
            if name not in self.names:
                raise ValueError(
                    f"{self.path}: there is no column {name!r}; the header has "
                    f"{', '.join(map(repr, self.names))}{self.delimiter_hint()}"
                )

    def _records(self, file: Any) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows below the header, which must have as many fields as it."""
        for line, row in islice(self._rows(file), 1, None):
            if len(row) != len(self.names):
                raise ValueError(
                    f"{self.path}, line {line}: expected {len(self.names)} fields, as in the "
                    f"header, got {len(row)}"
                )
            yield line, row

    def chunks(self) -> Iterator[RowChunk]:
        """Yield the rows in chunks of at most 10,000."""
        with self._open() as file:
            records = self._records(file)
            while chunk := list(islice(records, _ROWS)):
                lines, rows = zip(*chunk)
                yield RowChunk(dict(zip(self.names, map(list, zip(*rows)))), list(lines))


EXAMPLE = """
examples:
  python -m dpanalysis domain train.csv --label income -o domain.toml
  (then fill in the ranges)
  python -m dpanalysis fit train.csv --label income --domain domain.toml --epsilon 1 \\
      --out model.json --card card.html
  python -m dpanalysis predict new.csv --model model.json --id number -o predictions.csv
  python -m dpanalysis evaluate test.csv --model model.json --label income
  python -m dpanalysis domain train.csv --label hours -o hours.toml
  python -m dpanalysis fit train.csv --label hours --domain hours.toml --epsilon 1 \\
      --kind ridge --target-bounds 0 60 --out hours.json
"""

NOT_PRIVATE = (
    "These scores are exact: they are NOT private. Compute them on public data, or keep them."
)


def add(subparsers: Any) -> None:
    """Add the four commands to the parser."""
    purposes = {
        "domain": "write a template of the columns' domains, to be filled in",
        "fit": "fit a private classifier, or a regression, to a CSV file",
        "predict": "write the predictions of a model for a CSV file",
        "evaluate": "score a model on a CSV file; scores are not private",
    }
    for name, purpose in purposes.items():
        parser = subparsers.add_parser(
            name, help=purpose, description=purpose[0].upper() + purpose[1:] + ".", epilog=EXAMPLE,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        parser.add_argument("file", type=Path, metavar="CSV", help="with a header line, UTF-8")
        parser.add_argument(
            "--delimiter",
            type=_delimiter,
            default=",",
            help="one character, or \\t; default: a comma",
        )
        if name in ("predict", "evaluate"):
            parser.add_argument(
                "--model", type=Path, required=True, metavar="JSON", help="that fit has written"
            )
        if name in ("fit", "evaluate"):
            parser.add_argument(
                "--label", required=True, metavar="COLUMN", help="what the model predicts"
            )
        if name == "domain":
            parser.add_argument("--label", metavar="COLUMN", help="to leave out: it has no domain")
        if name in ("predict", "domain"):
            parser.add_argument(
                "-o", "--out", type=Path, metavar="FILE", help="instead of the screen"
            )
        if name == "predict":
            parser.add_argument("--id", metavar="COLUMN", help="to copy before the predictions")
            parser.add_argument(
                "--threshold", type=float, metavar="P",
                help="the second of two classes, in sorted order, is predicted from this "
                "probability on; choose it without looking at private rows; default: 0.5",
            )  # fmt: skip
        if name == "fit":
            _add_fit(parser)


def _add_fit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--domain", type=Path, required=True, metavar="TOML",
        help="public ranges and categories of the other columns; its template: command domain",
    )  # fmt: skip
    parser.add_argument(
        "--epsilon", type=float, required=True,
        help="privacy loss of one record, above 0: smaller is more private and less accurate",
    )  # fmt: skip
    parser.add_argument("--delta", type=float, default=0.0, help="default: 0, the pure guarantee")
    parser.add_argument("--out", type=Path, required=True, metavar="JSON", help="the model")
    parser.add_argument("--card", type=Path, metavar="HTML", help="the model card as a page")
    parser.add_argument(
        "--kind",
        choices=("logistic", "svm", "ridge"),
        default="logistic",
        help="ridge predicts a number; default: %(default)s",
    )
    parser.add_argument(
        "--target-bounds",
        type=float,
        nargs=2,
        metavar=("LOW", "HIGH"),
        help="of the label of --kind ridge: public, and not read off the file",
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
    parser.add_argument(
        "--seed", type=_seed, help="repeatable noise: for research, not for release"
    )
    parser.add_argument("--force", action="store_true", help="replace an older model")


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"warning: {message}", file=sys.stderr)


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number, 0 or more, got {text!r}")
    return int(text)


def run(arguments: argparse.Namespace, fail: Callable[[str], Any]) -> int:
    """Run a command; ``fail`` exits with a message about the arguments or the data."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _print_warning
            return _COMMANDS[arguments.command](arguments)
    except BrokenPipeError:
        raise
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except (ValueError, TypeError) as error:
        fail(str(error))
    except ImportError as error:
        fail(f"scikit-learn is needed: pip install 'dpanalysis-toolkit[sklearn]' ({error})")
    return 2


def _fit(arguments: argparse.Namespace) -> int:
    from .linear_model.classifiers import fit_blocks
    from .linear_model.saving import atomic_file, model_json
    from .preprocessing.encoder import PublicEncoder, read_domain, text_of

    outputs = {"--out": arguments.out, "--card": arguments.card}
    _check_distinct_files({"CSV": arguments.file, "--domain": arguments.domain}, outputs)
    for path in outputs.values():
        _check_output(path, arguments.force)
    domain, classes = read_domain(arguments.domain)
    if arguments.label in domain:
        raise ValueError(
            f"{arguments.domain}: the label {arguments.label!r} must have no domain: "
            "delete its line"
        )
    file = CsvFile(arguments.file, arguments.delimiter)
    file.require([*domain, arguments.label])
    model = _new_model(arguments, [text_of(each) for each in classes])
    model._budget(1)  # raises for an invalid budget before the file is read
    encoder = PublicEncoder.from_dict({"domain": domain, "columns": list(domain)})
    with _Lines(file) as lines:
        fit_blocks(model, encoder, lines.labeled(list(domain), arguments.label, _reader(model)))
    from sklearn.pipeline import Pipeline

    text = model_json(Pipeline([("encoder", encoder), ("model", model)]))
    try:
        with atomic_file(arguments.out) as out:
            out.write(text)
    except OSError as error:
        print(text, flush=True)  # its budget is spent
        raise OSError(
            f"{arguments.out} could not be written ({error.strerror}): the lines above are the "
            "model, to be saved as that file"
        ) from error
    try:
        if arguments.card:
            with atomic_file(arguments.card) as page:
                page.write(model.privacy_.to_html())
    finally:
        print(model.privacy_, flush=True)  # last, since its reader may be gone
    return 0


def _new_model(arguments: argparse.Namespace, classes: list[str]) -> Any:
    """Return the estimator described by the arguments; errors name the argument."""
    from .linear_model import LinearSVC, LogisticRegression, Ridge

    of_numbers = arguments.kind == "ridge"
    if of_numbers != (arguments.target_bounds is not None):
        raise ValueError(
            "--kind ridge needs --target-bounds LOW HIGH, the range of the label"
            if of_numbers
            else "--target-bounds is for --kind ridge"
        )
    if of_numbers and classes:
        raise ValueError(
            f"{arguments.domain}: the label of --kind ridge has no classes: delete their line"
        )
    of_label = (
        {"target_bounds": arguments.target_bounds} if of_numbers else {"classes": classes or None}
    )
    kinds = {"logistic": LogisticRegression, "svm": LinearSVC, "ridge": Ridge}
    return kinds[arguments.kind](
        arguments.epsilon,
        arguments.delta,
        relation=arguments.relation,
        size=arguments.size,
        random_state=arguments.seed,
        **of_label,
    )


def _reader(model: Any) -> Callable[[str], Any]:
    """Return a parser of label cells, whose ValueError says what the model expects."""
    from .preprocessing.encoder import few, text_of, text_read

    if hasattr(model, "target_bounds"):
        return _number
    known = getattr(model, "classes_", model.classes)
    words = None if known is None else [text_of(each) for each in known]
    seen: set[str] = set()

    def word(cell: str) -> str:
        if words is not None and cell not in words:
            cell = text_read(cell)  # 1.0 is the class 1, as in a table that was read as numbers
        if not cell or (words is not None and cell not in words):
            raise ValueError(f"one of {few(words)}" if words else "a label")
        if words is None:  # else each number, name or date became a published class
            seen.add(cell)
            number = _is_number(cell)
            if len(seen) > _MOST_LABELS or (number and not float(cell).is_integer()):
                ridge = ", or let --kind ridge predict numbers" if number else ""
                raise ValueError(f"a class: declare classes{ridge}")
        return cell

    return word


def _number(cell: str) -> float:
    if not (_is_number(cell) and math.isfinite(float(cell))):
        raise ValueError("a number")
    return float(cell)


def _is_number(cell: str) -> bool:
    from .preprocessing.encoder import number_of

    try:
        number_of(cell)
    except ValueError:
        return False
    return True


def _predict(arguments: argparse.Namespace) -> int:
    inputs = {"CSV": arguments.file, "--model": arguments.model}
    _check_distinct_files(inputs, {"--out": arguments.out})
    _check_output(arguments.out, force=True)
    encoder, model, file = _opened(arguments)
    from .linear_model.saving import atomic_file

    many, threshold = hasattr(model, "predict_proba"), arguments.threshold
    if threshold is not None and not (many and len(model.classes_) == 2):
        raise ValueError("--threshold is for a logistic model of two classes")
    if threshold is not None and not 0.0 <= threshold <= 1.0:
        raise ValueError(f"--threshold must lie in [0, 1], got {threshold:g}")
    copied = [] if arguments.id is None else [arguments.id]
    file.require(copied)
    with ExitStack() as stack:
        out: Any = stack.enter_context(atomic_file(arguments.out)) if arguments.out else sys.stdout
        writer = csv.writer(out, lineterminator="\n")
        probabilities = [f"p({c})" for c in model.classes_] if many else []
        writer.writerow([*copied, "prediction", *probabilities])
        for chunk in stack.enter_context(_Lines(file)):
            rows = encoder.transform(chunk.only(encoder.feature_names_in_))
            p = model.predict_proba(rows).T if many else []
            found = model.predict(rows)
            if threshold is not None:
                found = model.classes_[(p[1] >= threshold).astype(int)]
            texts = [[f"{each:.6g}" for each in column] for column in p]
            writer.writerows(zip(*(chunk[name] for name in copied), found.tolist(), *texts))
    return 0


def _evaluate(arguments: argparse.Namespace) -> int:
    from sklearn.metrics import log_loss, roc_auc_score

    from .preprocessing.encoder import text_of

    encoder, model, file = _opened(arguments)
    file.require([arguments.label])
    of_numbers = hasattr(model, "target_bounds")
    labels, guesses, scores = [], [], []
    columns, read = list(encoder.feature_names_in_), _reader(model)
    with _Lines(file) as lines:
        for table, part in lines.labeled(columns, arguments.label, read):
            rows = encoder.transform(table)
            labels.append(part)
            found = model.predict(rows)
            guesses.append(found if of_numbers else np.array([*map(text_of, found)]))
            scores.append(found if of_numbers else model.decision_function(rows))
    y, guess, score = (np.concatenate(parts) for parts in (labels, guesses, scores))
    print(f"rows: {len(y)}")
    if of_numbers:
        print(f"mean absolute error: {np.mean(np.abs(y - guess)):.4g}")
        if np.ptp(y) > 0.0:
            print(f"R^2: {1.0 - np.mean((y - guess) ** 2) / np.var(y):.4f}")
        print(NOT_PRIVATE)
        return 0
    print(f"accuracy: {np.mean(y == guess):.4f}")
    largest = float(np.unique(y, return_counts=True)[1].max() / len(y))
    print(f"accuracy of the largest class alone: {largest:.4f}")
    if score.ndim == 1 and len(set(y.tolist())) == 2:
        positive = y == text_of(model.classes_[1])
        print(f"area under the curve: {roc_auc_score(positive, score):.4f}")
        if hasattr(model, "predict_proba"):
            print(f"log loss: {log_loss(positive, 1.0 / (1.0 + np.exp(-score))):.4f}")
    print(NOT_PRIVATE)
    return 0


def _domain(arguments: argparse.Namespace) -> int:
    from .linear_model.saving import atomic_file
    from .preprocessing.encoder import template

    file = CsvFile(arguments.file, arguments.delimiter)
    file.require([] if arguments.label is None else [arguments.label])
    if hint := file.delimiter_hint():
        raise ValueError(f"{arguments.file}: the header has one column, {file.names[0]!r}{hint}")
    text = template(file.names, arguments.label)
    if arguments.out is None:
        print(text, end="")
    elif arguments.out.exists():
        raise ValueError(f"{arguments.out} exists already: it may be filled in")
    else:
        _check_output(arguments.out, force=False)
        with atomic_file(arguments.out) as out:
            out.write(text)
    return 0


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "fit": _fit,
    "predict": _predict,
    "evaluate": _evaluate,
    "domain": _domain,
}


def _delimiter(text: str) -> str:
    text = "\t" if text == "\\t" else text
    if len(text) != 1:
        raise argparse.ArgumentTypeError(f"must be one character, or \\t, got {text!r}")
    return text


def _check_distinct_files(inputs: Mapping[str, Path], outputs: Mapping[str, Path | None]) -> None:
    """Raise if an output would overwrite an input or another output."""
    taken = {path.resolve(): name for name, path in inputs.items()}
    for name, path in outputs.items():
        if path is not None:
            other = taken.setdefault(path.resolve(), name)
            if other != name:
                raise ValueError(f"{name} {path} is the file of {other}, which it would replace")


def _check_output(path: Path | None, force: bool) -> None:
    """Raise if a result could not be written, before any budget is spent."""
    from .linear_model.saving import check_writable

    if path is None:
        return
    if not path.resolve().parent.is_dir():
        raise ValueError(f"there is no folder {path.resolve().parent}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder")
    if path.exists() and not force:
        raise ValueError(f"{path} exists already: --force replaces it")
    check_writable(path)


def _opened(arguments: argparse.Namespace) -> tuple[Any, Any, CsvFile]:
    """Return encoder, model and file; raise unless the header has the encoder's columns."""
    from .linear_model import load

    loaded = load(arguments.model)
    if not hasattr(loaded, "steps"):
        raise ValueError(f"{arguments.model}: the model has no encoder, so it takes no CSV file")
    encoder, model = (step for _, step in loaded.steps)
    if not hasattr(encoder, "feature_names_in_"):
        raise ValueError(
            f"{arguments.model}: the encoder was fitted on an array, whose columns have no names, "
            "so it takes no CSV file: fit it on a table"
        )
    file = CsvFile(arguments.file, arguments.delimiter)
    file.require(list(encoder.feature_names_in_))
    return encoder, model, file


class _Lines:
    """Chunks of a file; turns errors that name a row of a chunk into ones that name a line."""

    def __init__(self, file: CsvFile) -> None:
        self._file, self._chunk = file, RowChunk({}, [])

    def __iter__(self) -> Iterator[RowChunk]:
        for chunk in self._file.chunks():
            self._chunk = chunk
            yield chunk

    def labeled(
        self, names: list[str], label: str, read: Callable[[str], Any]
    ) -> Iterator[tuple[RowChunk, np.ndarray]]:
        """Yield chunks of the columns ``names``, with their labels."""
        for chunk in self:
            labels = []
            for line, cell in zip(chunk.lines, map(str.strip, chunk[label])):
                try:
                    labels.append(read(cell))
                except ValueError as error:
                    raise ValueError(
                        f"{self._file.path}, line {line}, column {label!r}: expected {error}, "
                        f"got {cell!r}"
                    ) from None
            yield chunk.only(names), np.array(labels)
        if not self._chunk.lines:
            raise ValueError(f"{self._file.path}: there are no rows")

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        from .preprocessing.encoder import WrongCell

        if isinstance(error, WrongCell):
            raise ValueError(f"{self._file.path}, {error.by_line(self._chunk.lines)}") from None
