"""Opening below a folder, in both ways: by openat2, and part by part where it can't be called."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchyard.shared import beneath


@pytest.fixture(params=["openat2", "parts"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "parts":
        with beneath.without_openat2():
            yield request.param
        return
    if not beneath.has_openat2():
        pytest.skip("the kernel, or the container, has no openat2")
    yield request.param


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """`root/` with files and links in it, `secret/` beside it."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "token").write_text("secret")
    root = tmp_path / "root"
    (root / "deep" / "er").mkdir(parents=True)
    (root / "a").write_text("a")
    (root / "deep" / "er" / "b").write_text("bb")
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "file").symlink_to(tmp_path / "secret" / "token")
    (root / "inward").symlink_to("deep")
    (root / "gone").symlink_to("nowhere")
    os.mkfifo(root / "pipe")
    return tmp_path


@pytest.fixture
def root(top: Path, way: str) -> Iterator[int]:
    descriptor = beneath.open_root(str((top / "root").resolve()))
    yield descriptor
    os.close(descriptor)


def _read(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def test_a_file_is_opened(root: int) -> None:
    assert _read(beneath.open_file(root, "a")) == b"a"
    assert _read(beneath.open_file(root, "deep//./er/b")) == b"bb"


@pytest.mark.parametrize(
    "path",
    [
        "out/token", "file", "inward/er/b", "gone", "deep/../a", "..", "../secret/token", "a\0b",
        "deep/../../secret/token", "/proc/self/root/etc/passwd/..",
    ],
)  # fmt: skip
def test_no_link_is_followed(root: int, path: str) -> None:
    with pytest.raises(beneath.LeadsOut):
        beneath.open_file(root, path)
    if path != "gone":
        with pytest.raises(beneath.LeadsOut):
            beneath.begin(root, f"{path}/new", ".draft", 0o700, 0o600)
    with pytest.raises(beneath.LeadsOut):
        beneath.remove(root, f"{path}/token")


def test_an_absolute_path_begins_at_the_folder(root: int) -> None:
    assert _read(beneath.open_file(root, "/a")) == b"a"
    with pytest.raises(FileNotFoundError):
        beneath.open_file(root, "/etc/passwd")


def test_only_regular_files_are_opened_and_none_is_waited_for(root: int, top: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        before = os.getcwd()
        os.chdir(top / "root")
        listener.bind("socket")
        os.chdir(before)
        for path in ("pipe", "socket", "deep", "", "."):
            with pytest.raises(beneath.NotRegular):
                beneath.open_file(root, path)


@pytest.mark.parametrize("path", ["none", "deep/none", "a/none"])
def test_what_is_missing_is_missing(root: int, path: str) -> None:
    with pytest.raises((FileNotFoundError, NotADirectoryError)):
        beneath.open_file(root, path)
    assert beneath.look(root, path) is None
    beneath.remove(root, path)


def test_a_look_tells_nothing_of_what_a_link_leads_to(root: int) -> None:
    for path in ("out", "file", "inward", "gone"):
        assert beneath.look(root, path) == beneath.Found(path, beneath.LINK)
    kinds = {found.path: (found.kind, found.size_bytes) for found in beneath.names(root)}
    links = dict.fromkeys(("out", "file", "inward", "gone"), (beneath.LINK, 0))
    rest = {"a": (beneath.FILE, 1), "deep": (beneath.FOLDER, 0), "pipe": (beneath.OTHER, 0)}
    assert kinds == {**links, **rest}


def test_a_file_is_written_and_replaces_a_link_itself(root: int, top: Path) -> None:
    for path in ("new/folder/x", "file"):
        with os.fdopen(beneath.begin(root, path, ".draft", 0o750, 0o640), "wb") as file:
            file.write(b"written")
        beneath.finish(root, path, ".draft")
        assert (top / "root" / path).read_bytes() == b"written"
        assert (top / "root" / path).stat().st_mode & 0o777 == 0o640
    assert (top / "root" / "new" / "folder").stat().st_mode & 0o777 == 0o750
    assert (top / "secret" / "token").read_text() == "secret"


def test_a_draft_has_a_name_of_its_own(root: int, top: Path) -> None:
    for draft in ("", "..", "x/y", "a"):
        with pytest.raises((beneath.LeadsOut, FileExistsError)):
            beneath.begin(root, "new", draft, 0o700, 0o600)
    with pytest.raises((IsADirectoryError, NotADirectoryError)):
        beneath.begin(root, "deep", ".draft", 0o700, 0o600)
    with pytest.raises(NotADirectoryError):
        beneath.begin(root, "a/b", ".draft", 0o700, 0o600)
    beneath.discard(root, "never", ".draft")
    assert (top / "root" / "a").read_text() == "a"


def test_removing_a_folder_leaves_what_its_links_lead_to(root: int, top: Path) -> None:
    (top / "root" / "deep" / "link").symlink_to(top / "secret")
    folder = top / "root" / "deep"
    for _ in range(300):  # deeper than descriptors are kept
        folder = folder / "d"
        folder.mkdir()
    (folder / "last").write_text("x")
    for path in ("deep", "out", "a"):
        beneath.remove(root, path)
    left = sorted(os.listdir(top / "root"))
    assert left == ["file", "gone", "inward", "pipe"]
    assert (top / "secret" / "token").read_text() == "secret"
    with pytest.raises(beneath.LeadsOut):
        beneath.remove(root, "")


def test_the_root_has_no_links_on_its_way(top: Path, way: str) -> None:
    (top / "alias").symlink_to(top / "root")
    with pytest.raises(beneath.LeadsOut):
        beneath.open_root(str(top.resolve() / "alias"))
    with pytest.raises(NotADirectoryError):
        beneath.open_root(str(top.resolve() / "root" / "a"))


def test_a_kernel_that_forbids_the_call_is_asked_once(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def refuse(root: int, path: str, flags: int) -> int:
        asked.append(path)
        raise OSError(errno.EPERM, "forbidden by the container", path)

    with beneath.without_openat2():
        beneath._kernel.has_openat2 = True
        monkeypatch.setattr(beneath._kernel, "openat2", refuse)
        descriptor = beneath.open_root(str((top / "root").resolve()))
        assert _read(beneath.open_file(descriptor, "a")) == b"a"
        with pytest.raises(beneath.LeadsOut):
            beneath.open_file(descriptor, "file")
        os.close(descriptor)
    # The call that failed, and one that tells whether it was this folder or the call.
    assert len(asked) == 2
