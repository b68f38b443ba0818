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
_SHORT = re.compile(r"\\frac\s*(\d)\s*(\d)")


def mathml(latex: str, display: bool) -> str:
    """Return a formula as MathML; its LaTeX is kept for those who cannot see it."""
    for word, other in _WORDS.items():
        latex = latex.replace(word, other)
    latex = _SHORT.sub(r"\\frac{\1}{\2}", latex)
    return convert(latex, display="block" if display else "inline")


def _inline(self: Any, node: nodes.math) -> None:
    self.body.append(mathml(node.astext(), display=False))
    raise nodes.SkipNode


def _block(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="formula">{mathml(node.astext(), display=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Make this the renderer of all formulas."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
