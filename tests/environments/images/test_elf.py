"""What programs need, read from their ELF headers."""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path

import pytest

from torchyard.environments.images import elf


def test_a_program_names_its_loader_and_libraries() -> None:
    needs = elf.read(Path("/bin/sh"))
    assert needs is not None
    assert any(name.startswith(("libc.so", "libc.musl")) for name in needs.libraries)
    assert Path(needs.loader).exists()
    assert needs.kind[0] == (2 if sys.maxsize > 1 << 32 else 1)


def test_the_search_path_begins_at_the_file(tmp_path: Path) -> None:
    content = Path(sys.executable).resolve().read_bytes()
    needs = elf.read(sys.executable)
    assert needs is not None
    copy = tmp_path / "python"
    copy.write_bytes(content)
    copied = elf.read(copy)
    assert copied is not None and copied.libraries == needs.libraries
    assert not any("$" in path for path in copied.search_path)


@pytest.mark.parametrize(
    "content", [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 90]
)
def test_what_is_no_program_needs_nothing(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    needs = elf.read(file)
    assert needs is None or needs.libraries == ()


def test_a_broken_program_is_read_without_a_fault(tmp_path: Path) -> None:
    shell = shutil.which("true")
    assert shell is not None
    content = Path(shell).read_bytes()
    chance = random.Random(5)
    file = tmp_path / "file"
    for _ in range(200):
        broken = bytearray(content[: chance.randrange(64, len(content))])
        for _ in range(8):
            broken[chance.randrange(len(broken[:2048]))] = chance.randrange(256)
        file.write_bytes(broken)
        elf.read(file)  # any answer will do, but no exception and no endless work
