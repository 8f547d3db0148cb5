"""torchyard: PyTorch training at scale on machines you own, with Azure ML's interface.

The SDK, imported when it is first named::

    from torchyard import Client, Input, Output, command
"""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["Client", "Input", "Output", "__version__", "command"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from torchyard.client import Client, Input, Output, command


def __getattr__(name):  # type: ignore[no-untyped-def]
    # The worker's zip and the server hold this module too and have no SDK to load.
    if name in __all__:
        import importlib

        return getattr(importlib.import_module("torchyard.client"), name)
    raise AttributeError(f"module 'torchyard' has no attribute {name!r}")
