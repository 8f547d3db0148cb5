"""Tar files that clients upload, and those that attackers would."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from torchyard.azureml.web_services import archives
from torchyard.base.blobs import Blobs
from torchyard.base.errors import InvalidInput, LimitExceeded, ServerBusy


def member(name: str, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def packed(tmp_path: Path, *members: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> Path:
    file = tmp_path / "code.tar.gz"
    with tarfile.open(file, mode) as archive:  # type: ignore[call-overload]
        for info, content in members:
            info.size = len(content) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(content))
    return file


def unpacked(tmp_path: Path, archive: Path) -> dict[str, bytes]:
    blobs = Blobs(tmp_path / "blobs")
    code = archives.unpacked(blobs, archive, tmp_path)
    return {file.path: blobs.path(file.sha256).read_bytes() for file in code}


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_files_and_links_between_them(tmp_path: Path, mode: str) -> None:
    archive = packed(
        tmp_path,
        (member("src", type=tarfile.DIRTYPE), b""),
        (member("src/a.py"), b"one"),
        (member("src/a.py"), b"the last one counts"),
        (member("src/b.py", type=tarfile.SYMTYPE, linkname="a.py"), b""),
        (member("src/c.py", type=tarfile.LNKTYPE, linkname="src/a.py"), b""),
        mode=mode,
    )
    text = b"the last one counts"
    assert unpacked(tmp_path, archive) == {"src/a.py": text, "src/b.py": text, "src/c.py": text}
    assert [item.name for item in tmp_path.iterdir() if item.name.startswith("code-")] == []


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (member("../up.py"), "not a path inside"),
        (member("/etc/passwd"), "not a path inside"),
        (member("a", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "is not a file"),
        (member("a", type=tarfile.SYMTYPE, linkname="../../etc/passwd"), "is not a file"),
        (member("a", type=tarfile.SYMTYPE, linkname="a"), "is not a file"),
        (member("a", type=tarfile.LNKTYPE, linkname="b"), "is not a file"),
        (member("a", type=tarfile.FIFOTYPE), "is not a file"),
        (member("a", type=tarfile.CHRTYPE), "is not a file"),
    ],
)
def test_what_leads_out_is_refused(tmp_path: Path, info: tarfile.TarInfo, expected: str) -> None:
    archive = packed(tmp_path, (info, b""))
    with pytest.raises(InvalidInput, match=expected):
        unpacked(tmp_path, archive)


@pytest.mark.parametrize("content", [b"", b"not a tar", gzip.compress(b"nor this", mtime=0)])
def test_other_files_are_no_code(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "code.tar.gz"
    file.write_bytes(content)
    with pytest.raises(InvalidInput, match="can't be read"):
        unpacked(tmp_path, file)


def test_a_torn_upload_is_refused(tmp_path: Path) -> None:
    archive = packed(tmp_path, (member("a.py"), b"one" * 9999))
    archive.write_bytes(archive.read_bytes()[:-20])
    with pytest.raises(InvalidInput, match="can't be read"):
        unpacked(tmp_path, archive)


def test_an_archive_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MOST_BYTES", 1 << 20)
    archive = packed(tmp_path, (member("zeros"), bytes(2 << 20)))
    with pytest.raises(LimitExceeded, match="the code has more than"):
        unpacked(tmp_path, archive)


def test_an_archive_of_too_many_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "_MOST_FILES", 2)
    archive = packed(tmp_path, *((member(name), b"x") for name in "abc"))
    with pytest.raises(LimitExceeded):
        unpacked(tmp_path, archive)


def test_archives_are_unpacked_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "_PATIENCE_S", 0.01)
    archive = packed(tmp_path, (member("a.py"), b"x"))
    with archives._one, pytest.raises(ServerBusy, match="another archive"):
        unpacked(tmp_path, archive)
    assert unpacked(tmp_path, archive)


def test_links_count_as_much_as_what_they_lead_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MOST_BYTES", 1 << 20)
    links = [
        (member(f"l{number}", type=tarfile.LNKTYPE, linkname="zeros"), b"") for number in range(4)
    ]
    archive = packed(tmp_path, (member("zeros"), bytes(300_000)), *links)
    with pytest.raises(LimitExceeded):
        unpacked(tmp_path, archive)


def test_a_header_as_long_as_the_memory_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "code.tar"
    info = member("x", type=tarfile.XHDTYPE, size=64 << 20)
    file.write_bytes(info.tobuf(tarfile.USTAR_FORMAT) + bytes(64 << 20))
    with pytest.raises(InvalidInput, match="too long"):
        unpacked(tmp_path, file)


def test_an_archive_that_takes_longer_than_its_share_of_the_processor_is_refused(
    tmp_path: Path,
) -> None:
    # Two million empty parts, which take many seconds to read and no room on the disk.
    file = tmp_path / "code.tar.gz"
    file.write_bytes(gzip.compress(b"", mtime=0) * 2_000_000)
    with pytest.raises(InvalidInput) as refused:
        archives.unpacked(Blobs(tmp_path / "blobs"), file, tmp_path, processor_s=1)
    assert refused.value.code == "archive_too_slow"
    assert [item.name for item in tmp_path.iterdir() if item.name.startswith("code-")] == []
