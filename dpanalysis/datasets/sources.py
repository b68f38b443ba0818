"""Where the files of a data set are: the user's path, the environment, the cache, the web."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from .formats import read_bytes

__all__ = ["ENVIRONMENT", "Source", "locate"]

#: Environment variable with the folder of the machine's data sets.
ENVIRONMENT = "DPANALYSIS_DATA"


@dataclass(frozen=True)
class Source:
    """One public file: how it may be called, where it comes from, what it must hold.

    Parameters
    ----------
    names : tuple of str
        Accepted file names, best first, each also with ``.gz`` appended; a name may lie in
        a sub-folder. A download is kept under the first.
    url : str
        Public address of the file, plain or packed (gzip, bzip2, zip).
    digest : str
        ``"md5:..."`` or ``"sha256:..."`` of the unpacked content; with ``packed=True`` of
        the downloaded file itself.
    page : str
        Where a person finds the file.
    member : str
        Name inside the archive, where ``url`` is a zip file.
    packed : bool
        What ``digest`` is of.
    required : bool
        Whether the data set is of use without it (a test part beside a user's own file
        may be absent).

    Examples
    --------
    >>> Source(("a9a",), "https://example.org/a9a", "md5:0", "https://example.org").candidates
    ('a9a', 'a9a.gz', 'a9a.bz2')
    """

    names: tuple[str, ...]
    url: str
    digest: str
    page: str
    member: str = ""
    packed: bool = False
    required: bool = True

    @property
    def candidates(self) -> tuple[str, ...]:
        """File names to look for."""
        return tuple(name + end for name in self.names for end in ("", ".gz", ".bz2"))

    def inside(self, folder: Path) -> Path | None:
        """Return the file in ``folder``, if it is there; sub-folders of names may be left out."""
        for name in self.candidates:
            for path in (folder / name, folder / Path(name).name):
                if path.is_file():
                    return path
        return None


def locate(
    name: str, sources: tuple[Source, ...], path: str | os.PathLike[str] | None = None
) -> list[Path | None]:
    """Return the files of a data set, downloading what is nowhere to be found.

    Parameters
    ----------
    name : str
        Of the data set, for messages.
    sources : tuple of Source
        Its files.
    path : str or path-like, optional
        A folder with the files, or the first file itself (the others are then looked for
        beside it). Where it is given nothing else is searched.

    Returns
    -------
    list of Path or None
        One for each source; ``None`` only for a file that is not required, with ``path``.

    Raises
    ------
    FileNotFoundError
        If a file is nowhere; the message says where to get it and where to put it.
    ValueError
        If a downloaded file has the wrong checksum.
    """
    if path is not None:
        given = Path(path).expanduser()
        if given.is_file():
            return [given, *(_beside(name, source, given.parent) for source in sources[1:])]
        return [_beside(name, source, given) for source in sources]

    cache = _cache()
    environment = os.environ.get(ENVIRONMENT)
    folders = [Path(environment).expanduser()] if environment else []
    folders += [cache] if cache else []
    found: list[Path | None] = []
    for source in sources:
        here = next((file for folder in folders if (file := source.inside(folder))), None)
        found.append(here or _download(name, source, cache))
    return found


def _beside(name: str, source: Source, folder: Path) -> Path | None:
    found = source.inside(folder)
    if found is None and source.required:
        raise _missing(name, source, f"it is not in {folder}", folder)
    return found


def _cache() -> Path | None:
    """Return the user's cache folder; ``None`` where pooch is not installed."""
    if importlib.util.find_spec("pooch") is None:
        return None
    import pooch

    return Path(pooch.os_cache("dpanalysis"))


def _download(name: str, source: Source, cache: Path | None) -> Path:
    """Fetch a file into the cache, check it, and return its path."""
    tried = f"${ENVIRONMENT} is {os.environ.get(ENVIRONMENT) or 'not set'}"
    if cache is None:
        needs = f"{tried}, and downloading needs pooch (pip install 'dpanalysis-toolkit[figures]')"
        raise _missing(name, source, needs, f"${ENVIRONMENT}")
    try:
        received = _fetch(source.url)
    except Exception as error:  # whatever the network layers raise, the advice is the same
        reason = f"{tried}, it is not in {cache}, and downloading {source.url} failed: {error}"
        raise _missing(name, source, reason, cache) from error
    target = cache / source.names[0]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        fresh = Path(scratch, "file")
        fresh.write_bytes(received)
        if source.member:
            with zipfile.ZipFile(io.BytesIO(received)) as archive:
                fresh.write_bytes(archive.read(source.member))
        content = read_bytes(fresh)
        kind, _, expected = source.digest.partition(":")
        got = hashlib.new(kind, received if source.packed else content).hexdigest()
        if got != expected:
            raise ValueError(
                f"{source.url}: expected {kind} {expected}, got {got}; "
                "the file was changed or damaged on its way, and is not used"
            )
        fresh.write_bytes(content)
        os.replace(fresh, target)  # never a half-written file in the cache
    return target


def _fetch(url: str) -> bytes:
    import pooch

    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "download")
        pooch.HTTPDownloader(timeout=60)(url, str(path), None)
        return path.read_bytes()


def _missing(name: str, source: Source, reason: str, folder: Path | str) -> FileNotFoundError:
    return FileNotFoundError(
        f"data set {name!r}: no file {source.names[0]!r} ({reason}). Get it from {source.page} "
        f"and put it, unpacked or as .gz, into {folder}, or pass path=..."
    )
