"""What comes to a node, and to the server's cache, from a place that lies about its names."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from attacks.paths import NAMES, tree
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import TorchyardError
from torchyard.data import actions as data
from torchyard.data.datastores import Datastores
from torchyard.data.fetching import Fetcher
from torchyard.data.types import Entry
from torchyard.shared.failures import Failure
from torchyard.worker.files import remote_inputs
from torchyard.worker.files.blobs import Blobs
from torchyard.worker.files.inputs import checked_name
from torchyard.worker.files.logs import LogShipper

HASH = "0" * 64


class LyingLink:
    """A server that names one file as it likes."""

    def __init__(self, name: str) -> None:
        self.name = name

    def call(self, method: str, path: str, *rest: Any) -> Any:
        return {"single": True, "files": [{"path": self.name, "size_bytes": 6, "mode": "777"}]}

    def download(
        self, path: str, write: Callable[[bytes], object], timeout_s: float = 60.0
    ) -> None:
        write(b"ATTACK")


class LyingPlace:
    """A store whose keys are what they like, as an object store's may be."""

    def __init__(self, name: str) -> None:
        self.name = name

    def entry(self, path: str) -> Entry | None:
        return None

    def is_folder(self, path: str) -> bool:
        return True

    def walk(self, prefix: str) -> Iterator[Entry]:
        return iter([Entry(self.name, 6, "1")])

    def fetch(self, requested: Sequence[tuple[str, Path]]) -> None:
        for _, target in requested:
            target.write_bytes(b"ATTACK")

    def local(self, path: str, person: str = "") -> Path | None:
        return None


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_node_writes_nothing_outside_its_folder(name: str, tmp_path: Path) -> None:
    node = tmp_path / "a" / "node"
    node.mkdir(parents=True)
    before = tree(tmp_path, but=node)
    try:
        remote_inputs.fetch_input(LyingLink(name), "data", node / "in", lambda: True)  # type: ignore[arg-type]
    except (Failure, OSError, ValueError):
        pass
    blobs = tmp_path / "a" / "node" / "blobs"
    (blobs / HASH[:2]).mkdir(parents=True)
    manifest = {"files": [{"path": name, "sha256": HASH, "size": 1, "mode": "6777"}]}
    (blobs / HASH[:2] / HASH).write_text(json.dumps(manifest))
    try:
        for file in Blobs(None, str(blobs), lambda: False).manifest(HASH):  # type: ignore[arg-type]
            assert (node / file.path).resolve().is_relative_to(node)
            assert file.mode <= 0o777
    except (Failure, OSError, ValueError):
        pass
    try:
        assert (node / checked_name(name)).parent == node
    except Failure:
        pass
    assert tree(tmp_path, but=node) == before


def test_a_store_writes_nothing_outside_the_cache(
    tmp_path: Path, db: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "a" / "home"
    home.mkdir(parents=True)
    fetcher = Fetcher(home / "cache/data", db, Datastores(home / "datastores"))
    before = tree(tmp_path, but=home)
    refused = 0
    for number, name in enumerate(NAMES):
        location = data.DataLocation(LyingPlace(name), "p", f"s3://b/{number}")  # type: ignore[arg-type]
        monkeypatch.setattr(data, "locate", lambda *_, location=location: location)
        try:
            fetcher.fetch("default", "uri_folder", f"s3://b/{number}", clock.now(), lambda: False)
        except (TorchyardError, OSError, ValueError):
            refused += 1
        assert tree(tmp_path, but=home) == before, name
    print(f"{len(NAMES)} attacks on the cache: 0 got out, {refused} were refused")


def test_links_and_pipes_in_logs_are_not_shipped(tmp_path: Path) -> None:
    sent: list[str] = []

    class Link:
        def send(self, method: str, path: str, content: bytes, query: Any) -> Any:
            sent.append(query["path"])
            return {"size": query["offset"] + len(content)}

    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x.txt").write_text("OUTSIDE")
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "real.txt").write_text("real")
    (folder / "file").symlink_to(tmp_path / "outside" / "x.txt")
    (folder / "folder").symlink_to(tmp_path / "outside")
    (folder / "device").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe")
    shipper = LogShipper(Link(), tmp_path)  # type: ignore[arg-type]
    shipper.watch_folder(folder, "logs")
    assert shipper.finish(10)
    assert sent == ["logs/real.txt"]


def test_nothing_here_unpacks_an_archive() -> None:
    """No bomb and no member's name can do harm where no archive is ever opened for reading."""
    source = Path(__file__).parents[2] / "src" / "torchyard"
    unpacks = re.compile(
        r"\bimport (?:tarfile|gzip|bz2|lzma|zlib)\b|from (?:tarfile|zipfile|gzip|zlib) "
        r"|unpack_archive|"
        r"\.extract(?:all)?\(|ZipFile\([^)]*\"r\"|is_zipfile"
    )
    unpackers = [
        file.relative_to(source).as_posix()
        for file in sorted(source.rglob("*.py"))
        if unpacks.search(file.read_text())
    ]
    # `torchyard.train` takes checksums with zlib. What `yard` sends to a host by ssh is unpacked
    # there by a person's own account, member by member, within a folder of its own.
    # They unpack what this server packed itself: points in its database, and backups, whose
    # members are read one by one and written by names that are checked. Of zlib the blob service
    # takes checksums only, the web page's files are only packed, and of a package's own archive
    # `yard jupyterlab` takes one member, into memory. A node reads the compressed list of its
    # environment's files, which its own server made. SDK v1's web services are uploaded as tar
    # files: unpack_program.py reads them member by member, in a process with limits, by names that
    # are checked. shared/archives.py refuses headers that are too long. In
    # a job, an export to ONNX looks at the names in its model's file. Comparing collected data
    # reads packed tables of its user's row by row, at the client. Images are only packed.
    # Advisories are read from a packed list of its user's, member by member, within a limit; a
    # validation compresses bytes of its own. An installed environment is written member by member
    # by names that are checked, from its own server. Of a `.npz` to score, the client reads the
    # arrays' headers. What a node lacks of an environment is a compressed set of bits, of which no
    # more is unpacked than the list has files.
    assert set(unpackers) <= {
        "azureml/blob/service.py",
        "azureml/web_services/unpack_program.py",
        "shared/archives.py",
        "shared/index_sets.py",
        "train/checkpoint/checksums.py",
        "backups/archive.py",
        "base/postgres.py",
        "cli/commands/jupyterlab.py",
        "client/drift/tables.py",
        "client/images/installation.py",
        "client/images/layout.py",
        "client/onnx/inputs.py",
        "client/releases/advisories.py",
        "base/home/ray_archive.py",
        "environments/build/transport.py",
        "environments/images/layer_tar.py",
        "releases/workloads/basics.py",
        "web/static_routes.py",
        "worker/files/node_environment.py",
        "jobs/history/metric_blocks.py",
        "node_agent/carried_ray.py",
        "train/checkpoint/checkpointer.py",
        "train/checkpoint/checksum_stream.py",
        "train/checkpoint/folders.py",
        "train/onnx/loading.py",
    }, unpackers
