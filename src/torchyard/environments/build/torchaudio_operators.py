"""Make PyPI's torchaudio import beside a torch that is not built for the same CUDA.

PyPI's wheel is built for one CUDA: its compiled operators need `libc10_cuda.so`, which a CPU build
of torch does not have, and it refuses a torch for another CUDA; `import torchaudio` then fails.
torchaudio itself does without them where their files are missing: filters run in Python, and forced
alignment, RNN-T's loss and the CUDA decoder raise.

Owns: when an environment needs it, removing the compiled operators.
Leaves: what is in the lock to packages/lock.py.
Always: only links in the environment are removed, never files of uv's cache.
"""

from __future__ import annotations

from pathlib import Path

from torchyard.environments.build import cuda_builds


def needed(site_packages: Path) -> bool:
    """Whether it holds a torchaudio for CUDA, and a torch without CUDA or for another."""
    torch, audio = (cuda_builds.of_torch(site_packages), cuda_builds.of_torchaudio(site_packages))
    return torch is not None and bool(audio) and audio != torch


def remove(site_packages: Path) -> None:
    """Remove the compiled operators from an environment."""
    for operators in sorted((site_packages / "torchaudio" / "lib").glob("*.so")):
        operators.unlink()
