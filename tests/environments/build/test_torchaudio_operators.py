"""torchaudio of PyPI beside a CPU build of torch: without compiled operators it is Python alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchyard.environments.build import torchaudio_operators


@pytest.mark.parametrize(
    ("pins", "needed"),
    [
        ({"torch": "2.13.0+cpu", "torchaudio": "2.11.0"}, True),
        ({"torch": "2.13.0+cpu", "torchaudio": "2.11.0+cpu"}, False),
        ({"torch": "2.13.0", "torchaudio": "2.11.0"}, False),
        ({"torch": "1.12.1", "torchaudio": "0.12.1"}, False),
        ({"torch": "2.13.0+cpu"}, False),
    ],
)
def test_they_go_where_torch_has_no_cuda(pins: dict[str, str], needed: bool) -> None:
    assert torchaudio_operators.needed(pins) == needed


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
