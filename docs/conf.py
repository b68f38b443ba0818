"""The site: ``python -m sphinx -W -b html docs docs/_build/html``, without a network.

``-t quick`` leaves out what no check needs: the theme, the index of words, pictures.
"""

import os
import sys
from pathlib import Path

from jinja2.sandbox import SandboxedEnvironment
from numpydoc import docscrape_sphinx

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

import dpanalysis  # noqa: E402

project = "dpanalysis"
author = "The dpanalysis developers"
copyright = f"{author}, BSD-3-Clause"
release = version = dpanalysis.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_nb",
    "mathml",
    "site_pages",
]
exclude_patterns = ["_build", "_ext", "_generated/api/*.txt", "**/.ipynb_checkpoints"]
templates_path = ["_templates"]

# Words
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
myst_dmath_double_inline = True

# Notebooks are run once and kept; -D nb_execution_mode=off builds without running any.
os.environ.pop("MPLBACKEND", None)  # a kernel that inherits Agg shows no picture
nb_execution_mode = "cache"
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_execution_cache_path = str(HERE / "_build" / "notebooks")
nb_merge_streams = True

# Names
autosummary_generate = True
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
autodoc_default_options = {"show-inheritance": True}
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "pydata_sphinx_theme"
html_title = "dpanalysis"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("tables.js", {"defer": "defer"})]
html_show_sourcelink = False
html_sidebars = {"five_minutes": []}  # it has no pages below or beside it
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "navigation_with_keys": True,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
quick = tags.has("quick")  # noqa: F821
if quick:
    html_theme, html_theme_options = "basic", {}

_templates = SandboxedEnvironment()


def _one_environment(loader):
    """Return the same templates each time: numpydoc compiles its own for every name."""
    _templates.loader = _templates.loader or loader
    return _templates


def setup(app):
    """Make the changes that no setting makes."""
    docscrape_sphinx.SandboxedEnvironment = _one_environment
    app.connect("builder-inited", lambda app: setattr(app.builder, "search", not quick))
