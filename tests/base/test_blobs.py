from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from torchyard.base.blobs import Blobs
from torchyard.base.errors import InvalidInput, NotFound


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_blob_with_another_content_is_refused_and_not_kept(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    with pytest.raises(InvalidInput, match="arrived as"):
        blobs.put(_sha(b"one"), [b"two"])
    assert blobs.missing([_sha(b"one"), _sha(b"two")]) == [_sha(b"one"), _sha(b"two")]


def test_a_snapshot_needs_its_blobs(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    entry = {"path": "train.py", "sha256": _sha(b"x"), "size": 1, "mode": "0755"}
    with pytest.raises(InvalidInput) as refused:
        blobs.put_snapshot({"files": [entry]})
    assert refused.value.code == "blobs_missing"
    blobs.put_bytes(b"x")
    snapshot = blobs.put_snapshot({"files": [entry]})
    assert blobs.snapshot(snapshot.id) == snapshot
    assert snapshot.files[0].mode == "0755"


@pytest.mark.parametrize("path", ["../x", "/x", ""])
def test_a_snapshot_cannot_name_files_outside(tmp_path: Path, path: str) -> None:
    blobs = Blobs(tmp_path)
    sha256 = blobs.put_bytes(b"x")
    with pytest.raises(InvalidInput):
        blobs.put_snapshot({"files": [{"path": path, "sha256": sha256, "size": 1}]})


def test_unknown_and_malformed_ids(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    with pytest.raises(NotFound):
        blobs.snapshot(_sha(b"none"))
    with pytest.raises(InvalidInput):
        blobs.snapshot("../../etc/passwd")


def test_what_a_power_cut_emptied_is_asked_for_again(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    content, nothing = (blobs.put_bytes(content_bytes) for content_bytes in (b"content", b""))
    entry = {"path": "a", "sha256": content, "size": 7}
    made = blobs.put_snapshot({"files": [entry, {"path": "b", "sha256": nothing, "size": 0}]})
    for lost in (content, made.id):
        (tmp_path / lost[:2] / lost).chmod(0o644)
        (tmp_path / lost[:2] / lost).write_bytes(b"")
        assert not blobs.has(lost) and blobs.missing([nothing, lost]) == [lost]
        with pytest.raises(NotFound, match="snapshot"):
            blobs.snapshot(made.id)
        blobs.put_bytes(b"content")
        assert blobs.put_snapshot({"files": [entry, {"path": "b", "sha256": nothing, "size": 0}]})
        assert blobs.snapshot(made.id) == made
