"""Which descriptors are believed, and copying between files."""

from __future__ import annotations

import errno
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from torchyard.shared import descriptors
from torchyard.shared.descriptors import NotHanded

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with one, other:
        yield one, other


def _hand(ends: Ends, descriptor: int) -> int:
    descriptors.send(ends[0], descriptor)
    return descriptors.receive(ends[1])


def _is_down_to(count: int) -> bool:
    """Whether no more descriptors are open; what is refused is closed by a thread."""
    for _ in range(1000):
        if len(os.listdir("/proc/self/fd")) <= count:
            return True
        time.sleep(0.01)
    return False


def test_a_regular_file_arrives_and_no_program_inherits_it(ends: Ends, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with open(tmp_path / "file", "rb") as file:
        arrived = _hand(ends, file.fileno())
    try:
        assert os.pread(arrived, 100, 0) == b"content"
        assert not os.get_inheritable(arrived)
    finally:
        os.close(arrived)


def test_several_at_once_are_refused_and_closed(ends: Ends, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with open(tmp_path / "file", "w+b") as file:
        socket.send_fds(ends[0], [b"f"], [file.fileno(), file.fileno()])
        with pytest.raises(NotHanded):
            descriptors.receive(ends[1])
    assert _is_down_to(before)


def test_one_file_is_taken_at_a_time_in_their_order(ends: Ends, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
        with open(tmp_path / name, "rb") as file:
            descriptors.send(ends[0], file.fileno())
    for name in ("a", "b"):
        arrived = descriptors.receive(ends[1])
        assert os.pread(arrived, 100, 0) == name.encode()
        os.close(arrived)


def _pipe(folder: Path) -> int:
    reading, writing = os.pipe()
    os.close(writing)
    return reading


def _named_pipe(folder: Path) -> int:
    os.mkfifo(folder / "pipe")
    return os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)


def _only_a_path(folder: Path) -> int:
    (folder / "file").touch()
    return os.open(folder / "file", os.O_PATH)


def _only_for_writing(folder: Path) -> int:
    return os.open(folder / "file", os.O_WRONLY | os.O_CREAT)


def _memory(folder: Path) -> int:
    """Of a mount that this process does not see, as are those of a container."""
    return os.memfd_create("memory")


REFUSED: dict[str, Callable[[Path], int]] = {
    "a pipe": _pipe,
    "a named pipe": _named_pipe,
    "a folder": lambda folder: os.open(folder, os.O_RDONLY),
    "a device": lambda folder: os.open("/dev/zero", os.O_RDONLY),
    "a socket": lambda folder: socket.socket(socket.AF_UNIX).detach(),
    "a file that a program serves": lambda folder: os.open("/proc/self/maps", os.O_RDONLY),
    "a path": _only_a_path,
    "a file for writing": _only_for_writing,
    "memory": _memory,
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_readable_file_of_a_disk_is_refused(
    ends: Ends, tmp_path: Path, kind: str
) -> None:
    descriptor = REFUSED[kind](tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    try:
        with pytest.raises(NotHanded):
            _hand(ends, descriptor)
        assert _is_down_to(before)
    finally:
        os.close(descriptor)


def test_who_hands_nothing_over_is_not_waited_for_once_it_has_gone(ends: Ends) -> None:
    ends[0].sendall(b"f")
    with pytest.raises(NotHanded, match="no descriptor came"):
        descriptors.receive(ends[1])
    ends[0].sendall(b"f")
    ends[0].close()
    with pytest.raises(NotHanded, match="no descriptor came"):
        descriptors.receive(ends[1])


def _copied(source: Path, target: Path) -> bytes:
    with open(source, "rb") as reader, open(target, "w+b") as writer:
        offset = 0
        while count := descriptors.copy_range(reader.fileno(), writer.fileno(), offset, 3 << 20):
            offset += count
    return target.read_bytes()


def test_files_are_copied_with_their_holes_filled(tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "wb") as file:
        file.seek(5 << 20)
        file.write(b"end")
    assert _copied(tmp_path / "sparse", tmp_path / "copy") == bytes(5 << 20) + b"end"


def test_files_are_copied_to_another_disk(tmp_path: Path) -> None:
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK) or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("this machine has no second file system to write to")
    content = os.urandom(5 << 20)
    (tmp_path / "file").write_bytes(content)
    with tempfile.TemporaryDirectory(dir=shared) as other:
        assert _copied(tmp_path / "file", Path(other, "copy")) == content


@pytest.mark.parametrize("number", [errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def test_files_are_read_and_written_where_the_kernel_can_not_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*args: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "copy_file_range", refuse)
    content = os.urandom((3 << 20) + 7)
    (tmp_path / "file").write_bytes(content)
    assert _copied(tmp_path / "file", tmp_path / "copy") == content


def test_a_full_disk_is_no_reason_to_try_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "copy_file_range", refuse)
    (tmp_path / "file").write_bytes(b"content")
    with pytest.raises(OSError, match="No space left"):
        _copied(tmp_path / "file", tmp_path / "copy")
