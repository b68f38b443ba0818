"""Mutation operators: the small faults of a source file, and the source with one of them.

Every fault replaces one span of text, found in the syntax tree, and leaves the rest of the file
unchanged. Messages, docstrings, annotations and ``__repr__`` get no faults: these change no number.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARE = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_ARITHMETIC = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "/"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "|"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.MatMult: ("@", "*"),
}
_FUNCTIONS = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum",
    "ceil": "floor", "floor": "ceil", "any": "all", "all": "any",
    "log1p": "log", "expm1": "exp", "cumsum": "cumprod",
}  # fmt: skip
# Methods that only print, and calls for warnings or type checkers only.
_SILENT = {"__repr__", "__str__", "__dir__", "describe"}
_WORDS = {"warn", "warn_caller", "TypeVar", "cast", "overload"}


@dataclass(frozen=True)
class Fault:
    """One span of a file and its replacement.

    ``key`` identifies it by function, operator and line of code, not by line number, so that it
    is found again when the code around it changes.
    """

    file: str
    function: str
    operator: str
    line: str
    old: str
    new: str
    nth: int
    start: int
    end: int
    first: int
    last: int

    @property
    def key(self) -> str:
        """Name of the fault; unique in the package."""
        change = f"{_short(self.old)} -> {_short(self.new)}"
        place = f"{self.file}::{self.function}"
        return " | ".join([place, self.operator, self.line, change, str(self.nth)])

    def apply(self, source: str) -> str:
        """Return the source with the fault in it."""
        data = source.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()


def _short(text: str) -> str:
    return " ".join(text.split())


class _Finder(ast.NodeVisitor):
    """Walks a syntax tree and collects ``(operator, function, start, end, new text)``."""

    def __init__(self, source: str) -> None:
        self._data = source.encode()
        starts = [0]
        for line in self._data.split(b"\n"):
            starts.append(starts[-1] + len(line) + 1)
        self._starts = starts
        self._path: list[str] = []
        self.found: list[tuple[str, str, int, int, str]] = []

    def _span(self, node: ast.AST) -> tuple[int, int]:
        start = self._starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = self._starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return start, end

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self._data[start:end].decode()

    def _add(self, operator: str, start: int, end: int, new: str) -> None:
        name = ".".join(self._path) or "<module>"
        self.found.append((operator, name, start, end, new))

    def _replace(self, operator: str, node: ast.AST, new: str) -> None:
        start, end = self._span(node)
        if self._data[start:end].decode() != new:
            self._add(operator, start, end, new)

    def _between(self, operator: str, left: ast.AST, right: ast.AST, swap: tuple[str, str]) -> None:
        """Swap the operator between two operands."""
        low, high = self._span(left)[1], self._span(right)[0]
        old, new = swap
        word = rf"\b{old}\b" if old[0].isalpha() else re.escape(old)
        found = re.search(word.replace(" ", r"\s+"), self._data[low:high].decode())
        if found:
            self._add(operator, low + found.start(), low + found.end(), new)

    # Statements

    def _body(self, node: ast.AST, name: str) -> None:
        self._path.append(name)
        statements = node.body  # type: ignore[attr-defined]
        if statements and _is_text(statements[0]):
            statements = statements[1:]
        for each in statements:
            self.visit(each)
        self._path.pop()

    def visit_Module(self, node: ast.Module) -> None:
        for each in node.body[1:] if node.body and _is_text(node.body[0]) else node.body:
            self.visit(each)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._body(node, node.name)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name in _SILENT or node.name.startswith("_repr"):
            return
        self._path.append(node.name)
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            if isinstance(default, ast.Constant) and isinstance(default.value, str):
                self._replace("default", default, "None")
            self.visit(default)
        self._path.pop()
        self._body(node, node.name)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id.startswith("__"):
            return
        if isinstance(target, ast.Attribute | ast.Subscript) and self._path:
            self._replace("line", node, "pass")
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace("line", node, "pass")
        old, new = _ARITHMETIC[type(node.op)]
        self._between("arithmetic", node.target, node.value, (old + "=", new + "="))
        self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        if _is_text(node) or isinstance(node.value, ast.Yield | ast.YieldFrom):
            return
        if isinstance(node.value, ast.Call) and _called(node.value) not in _WORDS:
            self._replace("line", node, "pass")
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace("raise", node, "pass")  # its message gets no fault

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in ast.dump(node.test):
            return
        self._replace("branch", node.test, "False")
        if not all(isinstance(each, ast.Raise) for each in node.body):
            self._replace("branch", node.test, "True")  # a check that always refuses is detected
        self.generic_visit(node)

    # Expressions

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._replace("branch", node.test, "False")
        self._replace("branch", node.test, "True")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, right, operator in zip(operands, operands[1:], node.ops, strict=False):
            self._between("comparison", left, right, _COMPARE[type(operator)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.left, ast.Constant | ast.JoinedStr) and isinstance(
            getattr(node.left, "value", ""), str
        ):
            return  # text
        self._between("arithmetic", node.left, node.right, _ARITHMETIC[type(node.op)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        swap = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between("logic", left, right, swap)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub | ast.Invert):
            self._replace("sign", node, f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._replace("constant", node, str(not value))
        elif isinstance(value, int):
            self._replace("constant", node, str(value + 1))
        elif isinstance(value, float):
            self._replace("constant", node, f"(2.0 * {self._text(node)})" if value else "1.0")

    def visit_Call(self, node: ast.Call) -> None:
        name = _called(node)
        if name in _WORDS:
            return
        if name in _FUNCTIONS:
            start, end = self._span(node.func)
            self._add("function", end - len(name), end, _FUNCTIONS[name])
        elif len(node.args) > 1 and not any(isinstance(a, ast.Starred) for a in node.args[:2]):
            first, second = node.args[:2]
            one, two = self._text(first), self._text(second)
            start, end = self._span(first)[0], self._span(second)[1]
            gap = self._data[self._span(first)[1] : self._span(second)[0]].decode()
            if one != two and not (name or "").startswith("check_"):
                self._add("arguments", start, end, two + gap + one)
        self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass


def _is_text(node: ast.AST) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _called(node: ast.Call) -> str | None:
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None


def faults(file: str, source: str) -> Iterator[Fault]:
    """Yield every fault of one file, in order of position."""
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    lines, data = source.splitlines(), source.encode()
    seen: Counter[tuple[str, ...]] = Counter()
    found = sorted(finder.found, key=lambda each: each[2:5])
    for operator, function, start, end, new in found:
        first = data.count(b"\n", 0, start) + 1
        last = data.count(b"\n", 0, end) + 1
        line, old = _short(lines[first - 1]), data[start:end].decode()
        alike = (function, operator, line, _short(old), _short(new))
        seen[alike] += 1
        yield Fault(file, function, operator, line, old, new, seen[alike], start, end, first, last)
