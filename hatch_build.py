"""The README of the distribution: links and pictures lead to the repository, not to a folder."""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE = re.compile(r"(!\[[^\]]*\]\()(?!https?:)([^)#][^)]*)")
_LINK = re.compile(r"((?<!!)\[[^\]]*\]\()(?!https?:)([^)#][^)]*)")


def absolute(text: str, repository: str) -> str:
    """Return a page whose links hold wherever it is shown."""
    text = _PICTURE.sub(rf"\1{repository}/raw/main/\2", text)
    return _LINK.sub(rf"\1{repository}/blob/main/\2", text)


class CustomMetadataHook(MetadataHookInterface):
    """Fills in the field ``readme`` of pyproject.toml."""

    def update(self, metadata: dict) -> None:
        """Set the text that package indexes show."""
        page = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = absolute(page, metadata["urls"]["Repository"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
