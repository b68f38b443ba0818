"""Virtual environments for released packages: one per package, built by pip and cached."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

SECONDS = 3600.0  # for one installation
_READY = "ready.json"  # marks an environment whose installation succeeded


class NotInstallable(Exception):
    """A package cannot be installed here; the message is the last error of pip."""


@dataclass(frozen=True)
class Environment:
    """An interpreter and the versions of its packages."""

    python: Path
    versions: dict[str, str] = field(default_factory=dict)  # empty without pip


def cache_folder() -> Path:
    """Return the default folder of environments."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "dpanalysis" / "packages"


def prepare(name: str, requirements: Sequence[str], folder: Path | None = None) -> Environment:
    """Return an environment with these packages; build it if it is missing.

    Its folder in ``folder`` is named ``name`` and a digest of the requirements of pip.
    """
    folder = Path(folder) if folder else cache_folder()
    wanted = [*requirements, f"python=={sys.version.split()[0]}"]
    digest = hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:8]
    home = folder / f"{name}-{digest}"
    if not (home / _READY).is_file():
        _build(home, requirements)
    return Environment(_python(home), json.loads((home / _READY).read_text(encoding="utf-8")))


def _build(home: Path, requirements: Sequence[str]) -> None:
    """Build an environment in a temporary folder, and rename the folder when it is complete.

    An interrupted installation then leaves nothing that looks complete, and of two processes that
    build the same environment the second uses that of the first.
    """
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{home.name}-", dir=home.parent))
    except OSError as error:
        raise NotInstallable(f"no environment can be kept in {home.parent}: {error}") from None
    try:
        _run(sys.executable, "-m", "venv", str(made))
        python = str(_python(made))
        _run(python, "-m", "pip", "install", "--quiet", "--no-input", "--", *requirements)
        frozen = _run(python, "-m", "pip", "list", "--format", "json")
        versions = {entry["name"]: entry["version"] for entry in json.loads(frozen)}
        (made / _READY).write_text(json.dumps(versions, indent=1) + "\n", encoding="utf-8")
        try:
            made.rename(home)
        except OSError:
            if not (home / _READY).is_file():  # left by an older version
                shutil.rmtree(home, ignore_errors=True)
                made.rename(home)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _run(*command: str) -> str:
    """Return the output of a command; raise with its last line if it fails."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, env=kept, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstallable(str(error)) from None
    if done.returncode:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        blamed = [line for line in lines if line.startswith("ERROR:")] or lines
        raise NotInstallable(blamed[-1] if blamed else f"{command[0]} failed without a word")
    return done.stdout


def _python(home: Path) -> Path:
    return home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
