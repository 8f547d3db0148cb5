"""Messages between the server and the runner."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from torchyard.shared import runner_messages as messages


def test_a_message_and_its_files_arrive_whole(tmp_path: Path) -> None:
    here, there = socket.socketpair()
    body = {"request": "launch", "plan": "x" * 500_000}
    file = tmp_path / "file"
    file.write_text("content")
    with here, there, open(file) as opened:
        thread = threading.Thread(target=messages.send, args=(here, body, [opened.fileno()]))
        thread.start()
        received, [descriptor] = messages.receive(there)
        thread.join()
    assert received == body
    assert not os.get_inheritable(descriptor)
    with open(descriptor) as passed:
        assert passed.read() == "content"


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "ended early"),
        (b"\0\0\0\x05{}", "ended early"),
        (b"\xff\0\0\0", "bytes"),
        (b"\0\0\0\x02[]", "not a JSON object"),
        (b"\0\0\0\x01{", "not JSON"),
        (b"\0\0\x27\x10" + b"[" * 10_000, "not JSON"),
    ],
)
def test_what_is_not_a_message_is_refused(frame: bytes, reason: str) -> None:
    here, there = socket.socketpair()
    with there:
        with here:
            here.sendall(frame)
        with pytest.raises(messages.BadMessage, match=reason):
            messages.receive(there)


def test_files_of_a_refused_message_are_closed() -> None:
    here, there = socket.socketpair()
    reading, writing = os.pipe()
    with here, there:
        socket.send_fds(here, [b"\0\0\0\x02[]"], [writing])
        os.close(writing)
        with pytest.raises(messages.BadMessage):
            messages.receive(there)
    # The pipe has no writer any more.
    assert os.read(reading, 1) == b""
    os.close(reading)
