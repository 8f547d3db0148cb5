"""torchyard: PyTorch training at scale on machines you own, with Azure ML's interface."""

from __future__ import annotations

__version__ = "0.1.0"
