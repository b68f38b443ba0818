"""Networks of PyTorch as problems: any module whose samples do not mix."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or find_spec("torch"):
    from .module import Module
else:

    class Module:
        """Stands for the problem where PyTorch is missing, and says what to install."""

        def __init__(self, *arguments: Any, **named: Any) -> None:
            raise ImportError(
                "problems.Module needs PyTorch: pip install 'dpanalysis-toolkit[torch]', that is "
                "torch==2.13.0 or newer"
            )


__all__ = ["Module"]
