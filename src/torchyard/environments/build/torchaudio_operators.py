"""Make PyPI's torchaudio import beside a CPU build of torch.

PyPI's wheel is built for CUDA: its compiled operators need `libc10_cuda.so`, which a CPU build of
torch does not have, and `import torchaudio` then fails. torchaudio itself does without them where
their files are missing: filters run in Python, and forced alignment and the CUDA decoder raise.

Owns: when an environment needs it, removing the compiled operators.
Leaves: what is in the lock to packages/lock.py.
Always: only links in the environment are removed, never files of uv's cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def needed(pins: Mapping[str, str]) -> bool:
    """Whether the lock pairs a CPU torch with a torchaudio that was not built for it."""
    torch, audio = pins.get("torch", ""), pins.get("torchaudio", "")
    return "cpu" in torch and bool(audio) and "cpu" not in audio


def remove(site_packages: Path) -> None:
    """Remove the compiled operators from an environment."""
    for operators in sorted((site_packages / "torchaudio" / "lib").glob("*.so")):
        operators.unlink()
