"""Formulas as MathML: browsers show it without a script and without a network."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

__all__ = ["mathml", "setup"]

# What the converter does not know, and what it does: \tfrac12 has arguments without braces.
_WORDS = {r"\tfrac": r"\frac", r"\dfrac": r"\frac", r"\!": "", r"\mathbb E": r"\mathbb{E}"}
_WORDS[r"\arg"] = r"\operatorname{arg}"
# Delimiters that it leaves as they are after \Big.
_SIZED = {r"\{": "{", r"\}": "}", r"\|": "‖", r"\lceil": "⌈", r"\rceil": "⌉"}
_SHORT = re.compile(r"\\frac\s*(\d)\s*(\d)")
_MARK = re.compile(r"[.,:;)]*")


def mathml(latex: str, display: bool) -> str:
    """Return a formula as MathML; its LaTeX is kept for those who cannot see it."""
    for word, other in _WORDS.items():
        latex = latex.replace(word, other)
    latex = _SHORT.sub(r"\\frac{\1}{\2}", latex)
    found: str = convert(latex, display="block" if display else "inline")
    for word, other in _SIZED.items():
        found = found.replace(f">{word}<", f">{other}<")
    if "\\" in found:
        raise ValueError(f"the converter to MathML leaves a part of {latex!r} as it is")
    return found


def _glue(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Join a formula with the punctuation after it, which browsers else put on the next line."""
    for node in list(doctree.findall(nodes.math)):
        after = node.next_node(descend=False, siblings=True)
        if isinstance(after, nodes.Text):
            node["mark"] = _MARK.match(after)[0]
            after.parent.replace(after, nodes.Text(after[len(node["mark"]) :]))


def _inline(self: Any, node: nodes.math) -> None:
    text = mathml(node.astext(), display=False) + node.get("mark", "")
    self.body.append(f'<span class="unbroken">{text}</span>')
    raise nodes.SkipNode


def _block(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="formula">{mathml(node.astext(), display=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Make this the renderer of all formulas."""
    app.connect("doctree-resolved", _glue)
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
