"""Preprocessing of tables into bounded rows, by public domains or by privately learned bounds.

It needs scikit-learn: ``pip install 'dpanalysis-toolkit[sklearn]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import on_first_use

if TYPE_CHECKING:
    from .columns import LearnedRanges, PublicColumns
    from .encoder import PublicEncoder
    from .private_bounds import PrivateBounds

__all__ = ["LearnedRanges", "PrivateBounds", "PublicColumns", "PublicEncoder"]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "columns": "LearnedRanges PublicColumns",
        "encoder": "PublicEncoder",
        "private_bounds": "PrivateBounds",
    },
)
