"""The bytes of an image's layers."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from torchyard.base.errors import Conflict, InvalidInput
from torchyard.environments.images import layer_tar
from torchyard.environments.images.layer_tar import Entry

_HASH_BASED, _BY_TIME = b"\xa7\x0d\x0d\x0a\x03\0\0\0" + bytes(8), b"\xa7\x0d\x0d\x0a" + bytes(12)


def tar_of(entries: list[Entry]) -> bytes:
    return b"".join(layer_tar.stream(entries))


def members(content: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {member.name: member for member in archive}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    top = tmp_path / "environment"
    (top / "bin").mkdir(parents=True)
    (top / "bin" / "tool").write_text("#!/bin/sh\n")
    (top / "bin" / "tool").chmod(0o555)
    (top / "lib").mkdir()
    (top / "lib" / "module.py").write_text("x = 1\n")
    (top / "lib" / "module.py").chmod(0o444)
    return top


def test_the_same_files_give_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    first = tar_of(list(layer_tar.of_environment(folder, "opt/env")))
    copy = tmp_path / "copy"
    for name in ("lib/module.py", "bin/tool"):  # in another order
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((folder / name).read_bytes())
    (copy / "bin" / "tool").chmod(0o755)
    os.utime(copy / "lib" / "module.py", (1, 1))
    assert tar_of(list(layer_tar.of_environment(copy, "opt/env"))) == first
    (copy / "lib" / "module.py").write_text("x = 2\n")
    assert tar_of(list(layer_tar.of_environment(copy, "opt/env"))) != first


def test_files_are_roots_and_readable_by_all(folder: Path) -> None:
    contents = members(tar_of(list(layer_tar.of_environment(folder, "opt/env"))))
    assert contents["opt/env/bin/tool"].mode == 0o755
    assert contents["opt/env/lib/module.py"].mode == 0o644
    assert contents["opt/env/lib"].isdir()
    assert {(member.uid, member.gid) for member in contents.values()} == {(0, 0)}


def test_a_link_that_leads_out_is_stored_and_not_followed(folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("the server's signing key")
    (folder / "lib" / "key").symlink_to(secret / "key")
    (folder / "lib" / "all").symlink_to(secret)
    (folder / "lib" / "up").symlink_to("../../../../../etc/shadow")
    content = tar_of(list(layer_tar.of_environment(folder, "opt/env")))
    assert b"signing key" not in content
    contents = members(content)
    assert contents["opt/env/lib/key"].linkname == str(secret / "key")
    assert contents["opt/env/lib/all"].issym() and "opt/env/lib/all/key" not in contents
    assert contents["opt/env/lib/up"].linkname == "../../../../../etc/shadow"


def test_a_link_to_the_folders_own_place_moves_with_it(folder: Path) -> None:
    (folder / "lib64").symlink_to(folder / "lib")
    contents = members(tar_of(list(layer_tar.of_environment(folder, "opt/env"))))
    assert contents["opt/env/lib64"].linkname == "lib"


def test_a_file_that_becomes_a_link_is_not_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x = 1\n")
    entries = list(layer_tar.of_environment(folder, "opt/env"))
    (folder / "lib" / "module.py").unlink()
    (folder / "lib" / "module.py").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError):
        tar_of(entries)


@pytest.mark.parametrize("content", ["x = 1", "x = 1\n# longer"])
def test_a_file_that_changes_its_size_breaks_the_layer(folder: Path, content: str) -> None:
    entries = list(layer_tar.of_environment(folder, "opt/env"))
    (folder / "lib" / "module.py").chmod(0o644)
    (folder / "lib" / "module.py").write_text(content)
    with pytest.raises(Conflict, match=r"module\.py` changed"):
        tar_of(entries)


def test_a_name_that_would_remove_files_below_is_refused(folder: Path) -> None:
    (folder / "lib" / ".wh.os.py").touch()
    with pytest.raises(InvalidInput, match=r"lib/\.wh\.os\.py"):
        list(layer_tar.of_environment(folder, "opt/env"))
    with pytest.raises(InvalidInput, match=r"lib/\.wh\.os\.py"):
        list(layer_tar.of_root(folder, owned=False))


def test_modules_compiled_by_time_are_left_out(folder: Path) -> None:
    cache = folder / "lib" / "__pycache__"
    cache.mkdir()
    (cache / "module.cpython-311.pyc").write_bytes(_HASH_BASED)
    (cache / "other.cpython-311.pyc").write_bytes(_BY_TIME)
    names = members(tar_of(list(layer_tar.of_environment(folder, "opt/env"))))
    assert "opt/env/lib/__pycache__/module.cpython-311.pyc" in names
    assert "opt/env/lib/__pycache__/other.cpython-311.pyc" not in names


def test_names_of_any_kind_are_kept(folder: Path) -> None:
    long = "/".join(["a" * 60] * 6)
    (folder / long).mkdir(parents=True)
    names = [f"{long}/file", "lib/two\nlines", "lib/größe", "lib/-rf", "lib/ "]
    for name in names:
        (folder / name).write_text("x")
    (folder / "lib" / os.fsdecode(b"caf\xe9")).write_text("x")
    contents = members(tar_of(list(layer_tar.of_environment(folder, "opt/env"))))
    assert {f"opt/env/{name}" for name in names} < set(contents)
    assert any(os.fsencode(name).endswith(b"caf\xe9") for name in contents)


def test_a_root_keeps_modes_times_and_hard_links(folder: Path) -> None:
    (folder / "bin" / "su").write_text("x")
    (folder / "bin" / "su").chmod(0o4755)
    os.link(folder / "bin" / "su", folder / "bin" / "zu")
    os.utime(folder / "bin" / "su", (1_700_000_000.7, 1_700_000_000.7))
    os.mkfifo(folder / "bin" / "pipe")
    contents = members(tar_of(list(layer_tar.of_root(folder, owned=False))))
    assert (contents["bin/su"].mode, contents["bin/su"].mtime) == (0o4755, 1_700_000_000)
    assert contents["bin/zu"].islnk() and contents["bin/zu"].linkname == "bin/su"
    assert "bin/pipe" not in contents


def test_a_large_file_comes_in_blocks(folder: Path) -> None:
    (folder / "lib" / "large.bin").write_bytes(os.urandom(5 << 20))
    blocks = list(layer_tar.stream(layer_tar.of_environment(folder, "opt/env")))
    assert max(map(len, blocks)) < 3 << 20
    with tarfile.open(fileobj=io.BytesIO(b"".join(blocks))) as archive:
        file = archive.extractfile("opt/env/lib/large.bin")
        assert file is not None
        assert file.read() == (folder / "lib" / "large.bin").read_bytes()
