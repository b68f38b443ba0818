"""Remote calls of functions in another environment, with time-outs and clear errors.

The other process is not trusted: its answers are parsed as numbers, texts and arrays and never
executed; it gets a few harmless environment variables, none of which may hold a secret; and it is
killed, with all processes that it started, after its time limit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import worker

SECONDS = 600.0
_KEPT = ("PATH", "LANG", "LC_ALL", "SYSTEMROOT", "TEMP", "TMP", "TMPDIR", "LD_LIBRARY_PATH")


class WorkerFailed(Exception):
    """The other process is no longer usable: it ended, timed out, or wrote no valid message."""


class CallRaised(Exception):
    """A function raised in the other process; ``type`` is the name of the exception."""

    def __init__(self, type: str, message: str, traceback: str) -> None:
        super().__init__(f"{type}: {message}" if message else type)
        self.type, self.traceback = type, traceback


class Worker:
    """A process that runs the functions of a probe, a context manager.

    ``python`` is the interpreter of the environment, ``name`` the package's name on the index, and
    ``imported`` that in an import. Modules are searched in ``folders`` before the environment. A
    call may take ``seconds``. ``version`` is that in the package's metadata, None if it has none.

    Examples
    --------
    >>> import sys
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "probe.py").write_text("def double(x): return 2 * x")
    >>> with Worker(sys.executable, folder / "probe.py", "numpy", "numpy") as package:
    ...     package.call("double", x=21.0)
    42.0
    """

    def __init__(
        self,
        python: str | Path,
        probe: str | Path,
        name: str,
        imported: str,
        *,
        folders: Sequence[str | Path] = (),
        seconds: float = SECONDS,
    ) -> None:
        self.seconds = seconds
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        self._home = tempfile.TemporaryDirectory(prefix="dpanalysis-")
        kept = {key: value for key in _KEPT if (value := os.environ.get(key)) is not None}
        one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        paths = [os.path.abspath(path) for path in (worker.__file__, probe)]
        others = [os.path.abspath(folder) for folder in folders]
        try:
            self._process = subprocess.Popen(
                # -I: no folder of the caller, no site of the user, no PYTHON variables.
                [os.fspath(python), "-I", *paths, name, imported, *others],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                cwd=self._home.name,
                env={**kept, **one, "HOME": self._home.name},
                start_new_session=True,
            )
        except OSError as error:
            self._tidy()
            raise WorkerFailed(f"{python} cannot be started: {error}") from None
        try:
            self.version = self._answer()
        except BaseException:
            self.close()
            raise

    def call(self, function: str, **arguments: Any) -> Any:
        """Call a function of the probe and return its result.

        Raises CallRaised if the function does, after which the process remains usable; TypeError if
        :func:`.worker.pack` rejects an argument.
        """
        return self._answer(worker.pack({"function": function, "arguments": arguments}))

    def _answer(self, request: bytes = b"") -> Any:
        """Send a request and return the result."""
        if self._said.closed:
            raise WorkerFailed("the process was closed")
        late = threading.Event()

        def stop() -> None:
            late.set()
            self._end()

        timer = threading.Timer(self.seconds, stop)
        timer.daemon = True
        timer.start()
        assert self._process.stdin is not None and self._process.stdout is not None
        trouble = ""
        try:
            self._process.stdin.write(request)
            self._process.stdin.flush()
            answer = worker.unpack(self._process.stdout.read)
        except (EOFError, OSError, worker.Garbled) as error:
            trouble = str(error)
        finally:
            timer.cancel()
        if trouble:
            raise WorkerFailed(self._reason(late.is_set(), trouble))
        if not isinstance(answer, dict) or len(answer) != 1 or {*answer} - {"result", "error"}:
            raise WorkerFailed(self._reason(False, "an answer is a result or an error"))
        if "error" in answer:
            raise CallRaised(*_described(answer["error"]))
        return answer["result"]

    def _reason(self, late: bool, trouble: str) -> str:
        """Kill the process and return why it failed."""
        alive = self._process.poll() is None
        if alive and not late:
            # Its pipe is closed: it is about to exit, unless its message was invalid.
            try:
                self._process.wait(1.0)
                alive = False
            except subprocess.TimeoutExpired:
                pass
        self._end()
        code = self._process.wait()
        if late:
            reason = f"no answer within {self.seconds:g} s"
        elif alive:
            reason = trouble
        elif code < 0:
            reason = f"the process was ended by {_signal(-code)}"
        else:
            reason = f"the process ended with status {code}"
        last = self._last_line()
        return f"{reason}; the last that it wrote: {last}" if last else reason

    def _last_line(self) -> str:
        """Return the last line that the process wrote to standard error."""
        try:
            size = self._said.seek(0, os.SEEK_END)
            self._said.seek(max(0, size - 2000))
            lines = self._said.read().decode("utf-8", "replace").split("\n")
        except ValueError:  # the file is closed
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def _end(self) -> None:
        """Kill the process and all processes that it started."""
        try:
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        except (ProcessLookupError, PermissionError):
            pass

    def close(self) -> None:
        """Kill the process; a second call does nothing."""
        self._end()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except OSError:  # unsent data are lost
                pass
        self._tidy()

    def _tidy(self) -> None:
        self._said.close()
        self._home.cleanup()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _described(error: Any) -> tuple[str, str, str]:
    """Return type, message and traceback of an error from an untrusted answer."""
    error = error if isinstance(error, dict) else {}
    kind, message, trace = (str(error.get(key, "")) for key in ("type", "message", "traceback"))
    return kind or "an exception", message, trace


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
