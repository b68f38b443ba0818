"""``python -m notebooks [NAME ...]``: write notebooks with their outputs, to open in a browser.

From a checkout of the repository. Each is run from top to bottom; ``--no-run`` only converts.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = {path.stem: path for path in sorted(HERE.glob("[a-z]*.py"))}


def main(argv: list[str] | None = None) -> int:
    """Write the notebooks and return the exit status: 0, or 2 for an unknown name."""
    parser = argparse.ArgumentParser(prog="python -m notebooks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SOURCES)}")
    parser.add_argument("--no-run", action="store_true", help="convert, without outputs")
    parser.add_argument("--out", type=Path, default=HERE / "output", metavar="DIR")
    arguments = parser.parse_args(argv)
    if unknown := [name for name in arguments.names if name not in SOURCES]:
        parser.error(f"unknown notebook {unknown[0]!r}; known: {', '.join(SOURCES)}")
    try:
        import jupytext
        import nbclient
    except ImportError as error:
        parser.error(f"{error}: pip install 'dpanalysis-toolkit[notebooks]'")
    arguments.out.mkdir(parents=True, exist_ok=True)
    os.environ.pop("MPLBACKEND", None)  # a kernel that inherits Agg shows no picture
    for name in arguments.names or SOURCES:
        notebook = jupytext.read(SOURCES[name])
        if not arguments.no_run:
            with tempfile.TemporaryDirectory() as folder:
                resources = {"metadata": {"path": folder}}
                nbclient.NotebookClient(
                    notebook, timeout=600, kernel_name="python3", resources=resources
                ).execute()
        path = arguments.out / f"{name}.ipynb"
        jupytext.write(notebook, path)
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
