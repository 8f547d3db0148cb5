"""OCI image layouts on the disk: whole or not there, the same for the same layers."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchyard.base.errors import Conflict, DiskFull, InvalidInput
from torchyard.client.images import layout as layouts
from torchyard.client.images.layout import Image, Layout

LAYERS = {"system": b"a" * 3_000_000, "packages": os.urandom(100_000)}


def fill(layout: Layout) -> Image:
    layers = [layouts.add_layer(layout, name, [content]) for name, content in LAYERS.items()]
    labels = {
        "org.opencontainers.image.title": 'a "name"\n\x1b[31m',
        "torchyard.environment": "v:3",
    }
    return layouts.complete(layout, layers, "amd64", {"Labels": labels}, "localhost/v:3")


def blobs_of(target: Path) -> dict[str, bytes]:
    if target.is_dir():
        files = [file for file in target.rglob("*") if file.is_file()]
        return {str(file.relative_to(target)): file.read_bytes() for file in files}
    with tarfile.open(target) as archive:
        members = {
            member.name: archive.extractfile(member) for member in archive if member.isfile()
        }
        return {name: file.read() for name, file in members.items() if file is not None}


@pytest.mark.parametrize("name", ["image.tar", "image"])
def test_every_blob_is_what_its_name_says(tmp_path: Path, name: str) -> None:
    with layouts.written(tmp_path / name) as layout:
        image = fill(layout)
    files = blobs_of(tmp_path / name)
    for path, content in files.items():
        if path.startswith("blobs/"):
            assert path == f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (row,) = json.loads(files["index.json"])["manifests"]
    assert row["digest"] == image.manifest.digest
    manifest = json.loads(files[f"blobs/sha256/{row['digest'][7:]}"])
    config = json.loads(files[f"blobs/sha256/{manifest['config']['digest'][7:]}"])
    for content, diff_id, blob in zip(
        LAYERS.values(), config["rootfs"]["diff_ids"], manifest["layers"], strict=True
    ):
        assert diff_id == f"sha256:{hashlib.sha256(content).hexdigest()}"
        compressed = files[f"blobs/sha256/{blob['digest'][7:]}"]
        assert len(compressed) == blob["size"]
        assert zlib.decompress(compressed, 16 + zlib.MAX_WBITS) == content
    assert config["config"]["Labels"]["org.opencontainers.image.title"] == 'a "name"\n\x1b[31m'
    assert list(tmp_path.iterdir()) == [tmp_path / name]


def test_folder_and_file_hold_the_same_image(tmp_path: Path) -> None:
    digests = set()
    for name in ("image.tar", "image", "again.tar"):
        with layouts.written(tmp_path / name) as layout:
            digests.add(fill(layout).manifest.digest)
    assert len(digests) == 1
    assert blobs_of(tmp_path / "image.tar") == blobs_of(tmp_path / "image")
    assert (tmp_path / "image.tar").read_bytes() == (tmp_path / "again.tar").read_bytes()


@pytest.mark.parametrize("name", ["image.tar", "image"])
def test_a_blob_can_be_read_after_the_rename(tmp_path: Path, name: str) -> None:
    with layouts.written(tmp_path / name) as layout:
        image = fill(layout)
    for layer in image.layers:
        with layout.open(layer.blob) as file:
            content = file.read()
            file.seek(5)
            assert file.read(7) == content[5:12]
        assert f"sha256:{hashlib.sha256(content).hexdigest()}" == layer.blob.digest


@pytest.mark.parametrize("name", ["image.tar", "image"])
def test_an_error_in_the_middle_leaves_nothing(tmp_path: Path, name: str) -> None:
    def broken() -> Iterator[bytes]:
        yield b"x" * 100_000
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), layouts.written(tmp_path / name) as layout:
        layouts.add_layer(layout, "system", broken())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["image.tar", "image"])
def test_a_full_disk_leaves_nothing_and_is_named(tmp_path: Path, name: str) -> None:
    def full() -> Iterator[bytes]:
        yield b"x" * 100_000
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DiskFull, match=name), layouts.written(tmp_path / name) as layout:
        layouts.add_layer(layout, "system", full())
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_export_left_is_removed_by_the_next(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from torchyard.client.images import layout\n"
        "with layout.written(Path(sys.argv[1])) as made:\n"
        "    made.put('x', b'x'); os.kill(os.getpid(), 9)"
    )
    for name in ("image.tar", "image"):
        subprocess.run([sys.executable, "-c", code, str(tmp_path / name)])
    assert len(list(tmp_path.glob(".image*"))) == 2
    (tmp_path / ".other.exporting-1").touch()
    for name in ("image.tar", "image"):
        with layouts.written(tmp_path / name) as layout:
            fill(layout)
    assert {file.name for file in tmp_path.iterdir()} == {
        "image.tar", "image", ".other.exporting-1"
    }  # fmt: skip


@pytest.mark.parametrize("name", ["image.tar", "image"])
def test_an_image_is_replaced_only_when_asked(tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    with layouts.written(target) as layout:
        fill(layout)
    with pytest.raises(Conflict, match="exists already"), layouts.written(target):
        pass
    with pytest.raises(RuntimeError), layouts.written(target, overwrite=True):
        raise RuntimeError
    assert "index.json" in blobs_of(target)  # the old one is still there
    with layouts.written(target, overwrite=True) as layout:
        fill(layout)
    assert list(tmp_path.iterdir()) == [target]


def test_what_is_no_image_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    (tmp_path / "folder.tar").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "photos")
    for name in ("photos", "folder.tar", "link"):
        with pytest.raises(Conflict, match="not an image"):
            layouts.check_target(tmp_path / name, overwrite=True)
    assert (tmp_path / "photos" / "cat.jpg").exists()


@pytest.mark.parametrize("name", ["image.tar.gz", "image.tgz", "image.zip", "no/such/image.tar"])
def test_places_where_no_image_can_be(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput):
        layouts.check_target(tmp_path / name, overwrite=False)


@pytest.mark.slow
def test_a_layer_is_not_held_in_memory(tmp_path: Path) -> None:
    code = """
import os, resource, sys
from pathlib import Path
from torchyard.client.images import layout
def blocks():
    for _ in range(200):
        yield bytes(1 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with layout.written(Path(sys.argv[1])) as made:
    layout.add_layer(made, "large", blocks())
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    words: list[Any] = [sys.executable, "-c", code, str(tmp_path / "image.tar")]
    grown_mb = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert grown_mb < 40
