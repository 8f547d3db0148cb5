"""torchaudio of PyPI beside another torch: without compiled operators it is Python alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchyard.environments.build import cuda_builds, torchaudio_operators


def modules(site_packages: Path, torch: str, torchaudio: str) -> Path:
    """What the wheels say of themselves; an empty text stands for none."""
    for name, text in (("torch", torch), ("torchaudio", torchaudio)):
        if text:
            (site_packages / name).mkdir(parents=True)
            (site_packages / name / "version.py").write_text(text, encoding="utf-8")
    return site_packages


CPU = "from typing import Optional\n__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n"
CUDA = "__version__ = '2.15.0+cu132'\ncuda: str | None = '13.2'\nhip: str | None = None\n"
OLD = "__version__ = '1.10.2+cu102'\ndebug = False\ncuda = '10.2'\nhip = None\n"


@pytest.mark.parametrize(
    ("torch", "torchaudio", "needed"),
    [
        (CPU, "__version__ = '2.11.0+cu130'\n", True),
        (CPU, "__version__ = '2.11.0+cpu'\n", False),
        (CUDA, "__version__ = '2.11.0+cu130'\n", True),
        (CUDA, "__version__ = '2.11.0+cu132'\n", False),
        (OLD, "__version__ = '0.10.2+cu102'\n", False),
        (CUDA, "__version__ = '2.11.0'\n", False),
        ("__version__ = '2.13.0'\n", "__version__ = '2.11.0+cu130'\n", False),
        (CPU, "", False),
        ("", "__version__ = '2.11.0+cu130'\n", False),
    ],
)
def test_they_go_where_torch_has_no_cuda_or_another(
    tmp_path: Path, torch: str, torchaudio: str, needed: bool
) -> None:
    assert torchaudio_operators.needed(modules(tmp_path, torch, torchaudio)) == needed


@pytest.mark.parametrize(
    ("torch", "cuda"), [(CPU, ""), (CUDA, "13.2"), (OLD, "10.2"), ("cuda = broken", None)]
)
def test_the_cuda_of_torch_is_read_without_importing_it(
    tmp_path: Path, torch: str, cuda: str | None
) -> None:
    assert cuda_builds.of_torch(modules(tmp_path, torch, "")) == cuda


def test_the_cache_keeps_its_files(tmp_path: Path) -> None:
    cached = tmp_path / "cache" / "_torchaudio.abi3.so"
    cached.parent.mkdir()
    cached.write_bytes(b"ELF")
    lib = tmp_path / "site-packages" / "torchaudio" / "lib"
    lib.mkdir(parents=True)
    (lib / cached.name).hardlink_to(cached)
    (lib / "__init__.py").touch()
    torchaudio_operators.remove(tmp_path / "site-packages")
    assert [file.name for file in lib.iterdir()] == ["__init__.py"]
    assert cached.read_bytes() == b"ELF"
    torchaudio_operators.remove(tmp_path / "absent")
