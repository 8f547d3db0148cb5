"""Instances that the router reaches by a Unix socket, at which nobody else can answer."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from endpoints.router.router_process import RouterProcess
from eventually import eventually
from torchyard.endpoints.router.table import DeploymentRow, InstanceRow
from torchyard.shared import unix_sockets

ONE_DATABASE = True
_INSTANCE = r"""
import asyncio, socket, sys
name = sys.argv[2].encode()
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(name), name)
class Model(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.transport.write(ANSWER)
async def main():
    listener = socket.socket(fileno=int(sys.argv[1]))
    server = await asyncio.get_running_loop().create_unix_server(Model, sock=listener)
    await server.serve_forever()
asyncio.run(main())
"""
Start = Callable[[str], tuple[InstanceRow, "subprocess.Popen[bytes]"]]


@pytest.fixture
def start(router: RouterProcess) -> Iterator[Start]:
    """Start an instance whose socket is in the router's home."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str) -> tuple[InstanceRow, subprocess.Popen[bytes]]:
        # Longer than an address may be.
        path = router.home / ("s" * 120) / name
        listener = unix_sockets.listen(path)
        assert listener is not None
        with listener:
            words = [sys.executable, "-I", "-S", "-c", _INSTANCE, str(listener.fileno()), name]
            processes.append(subprocess.Popen(words, pass_fds=[listener.fileno()]))
        return InstanceRow(name, str(path), 0), processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


def test_a_request_is_answered_by_the_socket(router: RouterProcess, start: Start) -> None:
    row, _ = start("blue-1-0")
    router.write({"blue": DeploymentRow((row,))})
    for _ in range(3):
        answer = router.request()
        assert (answer.status, answer.body) == (200, b"blue-1-0")


def test_requests_of_one_that_died_wait_for_the_next_where_one_is_started(
    router: RouterProcess, start: Start
) -> None:
    """No byte of them has been sent. Those in the queue wait on, too."""
    row, process = start("blue-1-0")
    blue = DeploymentRow((row,), can_wake=True, max_queue_wait_ms=500)
    router.write({"blue": blue})
    eventually(lambda: router.request().body == b"blue-1-0", "the instance is known")
    process.kill()
    process.wait()
    with ThreadPoolExecutor(8) as threads:
        held = [threads.submit(router.request) for _ in range(8)]
        eventually(lambda: router.statistics("blue")["queued"] == 8, "all of them wait")
        # The table is written for other reasons, too, before it is known there.
        router.write({"blue": replace(blue, timeout_ms=9000)})
        time.sleep(1)
        assert not any(each.done() for each in held)
        second, _ = start("blue-2-0")
        router.write({"blue": replace(blue, instances=(second,))})
        assert [each.result().body for each in held] == [b"blue-2-0"] * 8


def test_one_that_died_is_answered_for_by_the_other_and_by_nobody_else(
    router: RouterProcess, start: Start
) -> None:
    (first, process), (second, _) = start("blue-1-0"), start("blue-1-1")
    router.write({"blue": DeploymentRow((first, second))})
    eventually(
        lambda: {router.request().body for _ in range(4)} == {b"blue-1-0", b"blue-1-1"}, "both"
    )
    process.kill()
    process.wait()
    for _ in range(20):
        answer = router.request()
        assert (answer.status, answer.body) == (200, b"blue-1-1")


def test_without_an_instance_that_lives_there_is_an_error(
    router: RouterProcess, start: Start
) -> None:
    row, process = start("blue-1-0")
    router.write({"blue": DeploymentRow((row,))})
    assert router.request().status == 200
    process.kill()
    process.wait()
    assert router.request().status in (502, 503)
    gone = InstanceRow("blue-1-1", str(Path(row.host).with_name("gone")), 0)
    router.write({"blue": DeploymentRow((gone,))})
    assert router.request().status == 503


def test_a_socket_that_somebody_answers_at_is_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "sockets" / "one"
    first = unix_sockets.listen(path)
    assert first is not None and unix_sockets.listen(path) is None
    assert path.parent.stat().st_mode & 0o077 == 0
    first.close()
    second = unix_sockets.listen(path)
    assert second is not None
    second.close()
    # What nobody answers at goes with the next one.
    third = unix_sockets.listen(path.with_name("other"))
    assert third is not None and os.listdir(path.parent) == ["other"]
    third.close()
