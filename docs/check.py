"""Check a built site: ``python docs/check.py docs/_build/html``; exit status 1 for a fault.

Every internal link leads somewhere, every picture says what it shows, every page has a title, no
page asks another machine for anything, and every public name has its entry.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

sys.path[:0] = [str(Path(__file__).parent / "_ext"), str(Path(__file__).parents[1])]

import site_api  # noqa: E402

__all__ = ["Page", "faults"]

#: Tags that fetch what they name.
_FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """What a page links to, what can be linked to, and what it fetches."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.mute: list[str] = []
        self.title = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what a tag names."""
        named = dict(attrs)
        if name := named.get("id") or (tag == "a" and named.get("name")):
            self.anchors.add(str(name))
        if tag == "a" and named.get("href"):
            self.links.append(str(named["href"]))
        if tag == "link" and named.get("rel") in ("stylesheet", "preload", "icon"):
            self.fetched.append(str(named.get("href")))
        if named.get(_FETCHED.get(tag, "")):
            self.fetched.append(str(named[_FETCHED[tag]]))
        if tag == "img" and not (named.get("alt") or "").strip():
            self.mute.append(str(named.get("src")))
        self.title = self.title or tag == "title"


def faults(site: Path) -> list[str]:
    """Return what is wrong with a site, in sentences."""
    found = [path for path in site.rglob("*.html") if "_static" not in path.parts]  # templates
    pages = {path.resolve(): Page(path) for path in found}
    found = [] if pages else [f"{site} holds no page"]
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        found += [] if page.title else [f"{name} has no title"]
        found += [f"{name}: the picture {source} has no alt text" for source in page.mute]
        for link in page.links:
            if reason := _broken(link, path, pages):
                found.append(f"{name}: {link} {reason}")
        for link in page.fetched:
            if urlsplit(link).netloc:
                found.append(f"{name} fetches {link}")
            elif reason := _broken(link, path, pages):
                found.append(f"{name}: {link} {reason}")
    anchors = set().union(*(page.anchors for page in pages.values())) if pages else set()
    named = dict(site_api.pages()) if pages else {}
    for module in site_api.MODULES:
        for each in re.findall(r"^   (\w+)$", named.get(module, ""), re.M):
            if f"{module}.{each}" not in anchors:
                found.append(f"{module}.{each} has no entry")
    return found


def _broken(link: str, path: Path, pages: dict[Path, Page]) -> str:
    """Return what is wrong with a link of a page; "" where it leads somewhere, or elsewhere."""
    name, _, anchor = link.partition("#")
    target = _target(path.parent, name) if name else path
    if target is None:
        return "leads nowhere"
    if anchor and target in pages and unquote(anchor) not in pages[target].anchors:
        return "names a place that is not on that page"
    return ""


@cache
def _target(folder: Path, name: str) -> Path | None:
    """Return what a name in a folder's pages stands for; itself elsewhere, None for nothing."""
    parts = urlsplit(name)
    if parts.scheme or parts.netloc:
        return Path(name)
    target = (folder / unquote(parts.path)).resolve()
    return target if target.exists() else None


if __name__ == "__main__":
    wrong = faults(Path(sys.argv[1]))
    print("\n".join([*wrong, f"{len(wrong)} faults"]))
    sys.exit(bool(wrong))
