"""PyTorch networks as problems: any module that processes each sample independently."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or find_spec("torch"):
    from .module import Module
else:

    class Module:
        """Placeholder without PyTorch, whose error names what to install."""

        def __init__(self, *arguments: Any, **named: Any) -> None:
            raise ImportError(
                "problems.Module needs PyTorch: pip install 'dpanalysis-toolkit[torch]', that is "
                "torch==2.13.0 or newer"
            )


__all__ = ["Module"]
