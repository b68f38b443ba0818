"""Curves read off the authors' own figures, where the data folder has them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

__all__ = ["published_panels"]


def published_panels(figure: str) -> list[dict[str, Any]]:
    """Return the panels of a figure of Kuru et al. (2022), empty without ``$DPANALYSIS_DATA``.

    Each panel has ``title`` and ``curves``; a curve has ``points``, a list of ``[x, y]``.
    """
    folder = os.environ.get("DPANALYSIS_DATA")
    path = Path(folder or ".", "published_curves_001.json")
    if not folder or not path.is_file():
        return []
    panels: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["figures"][figure][
        "panels"
    ]
    return panels
