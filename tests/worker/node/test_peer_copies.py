"""Nodes keep copies of each other's checkpoints, and deliver them for a node that is lost."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eventually import eventually
from torchyard.shared.connection import Connection
from torchyard.shared.server_address import ServerAddress
from torchyard.worker.node import peer_channel, peer_keeper
from torchyard.worker.node.checkpoint_delivery import CheckpointDelivery
from torchyard.worker.node.peer_channel import BadPeer, Channel
from torchyard.worker.node.peer_keeper import PeerKeeper, Space
from torchyard.worker.node.peer_sender import PeerSender
from torchyard.worker.preflight.ports import hold_port
from worker.bench import Bench
from worker.stub_server import StubServer, running

TOKEN = "a1\nyard_a_test"
OWNER = 1
NO_RESERVE = Space(reserve_bytes=0)
NEVER = lambda: False  # noqa: E731


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with running() as created:
        yield created


@pytest.fixture
def link(stub: StubServer) -> Iterator[Connection]:
    connection = Connection.of_attempt(ServerAddress(stub.url), "yard_a_test", "a1")
    yield connection
    connection.close()


class Pair:
    """An owner's outputs, delivery and sender, and the keeper of its copies."""

    def __init__(self, folder: Path, link: Connection) -> None:
        self.outputs, self.copies = folder / "outputs", folder / "copies"
        self.delivery = CheckpointDelivery(link, self.outputs)
        self.told: list[str] = []
        self.channels: list[Channel] = []
        self.sender = PeerSender(self.delivery, self.connect, self.told.append, every_s=0.02)
        self.open()

    def open(self, space: Space = NO_RESERVE, lost_after_s: float = 10.0) -> None:
        port = hold_port(6800)
        self.address = ("127.0.0.1", port.port)
        self.keeper = PeerKeeper(port, TOKEN, OWNER, self.copies, space, lost_after_s)
        self.keeper.start()

    def connect(self) -> Channel:
        self.channels.append(peer_channel.connect(self.address, TOKEN, OWNER))
        return self.channels[-1]

    def copied_checkpoints(self) -> list[str]:
        return [folder.name for folder in peer_keeper.complete_checkpoints(self.copies)]


@pytest.fixture
def pair(tmp_path: Path, link: Connection) -> Iterator[Pair]:
    made = Pair(tmp_path, link)
    yield made
    made.sender._ending.set()
    for channel in made.channels:
        channel.close()
    made.keeper.close()


def save(outputs: Path, step: int, content: str = "state") -> Path:
    folder = outputs / "checkpoints" / f"step-{step:08d}"
    (folder / "below").mkdir(parents=True, exist_ok=True)
    (folder / "__1_0.distcp").write_text(f"{content} {step}")
    (folder / "below" / "empty").touch()
    (folder / "manifest.new").write_text("{}")
    os.rename(folder / "manifest.new", folder / "manifest.json")
    return folder


def wait_until(condition: Callable[[], object]) -> None:
    eventually(condition, "what the copies are to come to")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def test_the_newest_that_the_server_lacks_have_a_copy(pair: Pair) -> None:
    pair.sender.copy()
    assert not pair.copies.exists()  # nothing is said of nothing
    for step in (1, 2, 3):
        os.utime(save(pair.outputs, step) / "manifest.json", (step, step))
    pair.sender.copy()
    assert pair.copied_checkpoints() == ["step-00000002", "step-00000003"]
    newest = pair.outputs / "checkpoints" / "step-00000003"
    assert contents(pair.copies / newest.name) == contents(newest)
    pair.delivery.deliver()
    pair.sender.copy()
    assert pair.copied_checkpoints() == []


def test_a_checkpoint_without_a_manifest_has_none(pair: Pair) -> None:
    folder = save(pair.outputs, 1)
    (folder / "manifest.json").unlink()
    pair.sender.copy()
    assert not pair.copies.exists()


def test_what_is_written_again_is_copied_again(pair: Pair) -> None:
    folder = save(pair.outputs, 1)
    pair.sender.copy()
    (folder / "__1_0.distcp").write_text("another state")
    os.utime(folder / "manifest.json", (5, 5))
    pair.sender.copy()
    assert (pair.copies / folder.name / "__1_0.distcp").read_text() == "another state"
    assert pair.copied_checkpoints() == [folder.name]


def test_what_the_script_deletes_is_dropped(pair: Pair) -> None:
    folder = save(pair.outputs, 1)
    pair.sender.copy()
    shutil.rmtree(folder)
    pair.sender.copy()
    assert pair.copied_checkpoints() == []


def test_an_owner_that_has_delivered_needs_its_copies_no_more(
    pair: Pair, requests: list[str], link: Connection
) -> None:
    save(pair.outputs, 1)
    pair.sender.start()
    wait_until(pair.copied_checkpoints)
    assert pair.sender._thread.is_alive()
    pair.sender.finish(delivered=True)
    assert not pair.keeper.is_needed(NEVER)
    assert pair.copied_checkpoints() == [] and requests == [] and pair.told == []


@pytest.fixture
def requests(stub: StubServer) -> list[str]:
    """`METHOD path` of each request that the server gets."""
    seen: list[str] = []

    def note(method: str, path: str) -> None:
        seen.append(f"{method} {path.removeprefix('/files/outputs/checkpoints/')}")

    stub.refuse = note
    return seen


def test_a_lost_owners_part_is_delivered_as_far_as_it_is_missing(
    pair: Pair, stub: StubServer, link: Connection, requests: list[str]
) -> None:
    pair.keeper.close()
    pair.open(lost_after_s=0.3)
    folder = save(pair.outputs, 7)
    pair.sender.copy()
    stub.files[f"outputs/checkpoints/{folder.name}/manifest.json"] = b"{}"  # its peer's own
    pair.sender._drop()
    assert pair.keeper.is_needed(NEVER)
    pair.keeper.close()
    assert peer_keeper.deliver(link, pair.copies, NEVER) == [folder.name]
    assert requests == [
        "GET /previous-outputs",
        f"PUT {folder.name}/__1_0.distcp",
        f"PUT {folder.name}/below/empty",
    ]
    assert stub.files[f"outputs/checkpoints/{folder.name}/__1_0.distcp"] == b"state 7"
    assert peer_keeper.deliver(link, pair.copies, NEVER) == []


def test_an_incomplete_copy_is_not_delivered(
    pair: Pair, link: Connection, stub: StubServer
) -> None:
    folder = save(pair.outputs, 1)
    pair.sender.copy()
    (pair.copies / folder.name / "manifest.json").unlink()
    assert not pair.keeper.is_needed(NEVER)
    assert peer_keeper.deliver(link, pair.copies, NEVER) == [] and not stub.files


def test_a_refused_file_keeps_the_manifest_back(
    pair: Pair, link: Connection, stub: StubServer
) -> None:
    folder = save(pair.outputs, 1)
    pair.sender.copy()
    stub.refuse = lambda method, path: (400, {}) if "empty" in path else None
    peer_keeper.deliver(link, pair.copies, NEVER)
    assert list(stub.files) == [f"outputs/checkpoints/{folder.name}/__1_0.distcp"]


def test_without_space_there_is_no_copy_and_one_message(pair: Pair) -> None:
    pair.keeper.close()
    pair.open(Space(reserve_bytes=1 << 62))
    save(pair.outputs, 1)
    save(pair.outputs, 2)
    for _ in range(3):
        pair.sender.copy()
    assert pair.copied_checkpoints() == []
    (message,) = pair.told
    assert message.startswith("the disk of its peer has ") and message.endswith(" MiB free")


def test_copies_count_against_the_limit_of_the_job(pair: Pair) -> None:
    used = [0]
    pair.keeper.close()
    pair.open(Space(limit_bytes=1000, used_bytes=lambda: used[0], reserve_bytes=0))
    save(pair.outputs, 1, "x" * 600)
    pair.sender.copy()
    assert pair.copied_checkpoints() == ["step-00000001"]
    save(pair.outputs, 2, "x" * 600)
    pair.sender.copy()
    assert pair.copied_checkpoints() == ["step-00000001"]
    (message,) = pair.told
    assert message == "the job may write 0 MiB more on its peer"
    # What the ranks write comes first.
    used[0] = 900
    pair.sender.copy()
    assert pair.copied_checkpoints() == []
    pair.sender.copy()
    assert pair.copied_checkpoints() == [] and len(pair.told) == 1


def test_a_peer_that_answers_nothing_stops_nobody(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_channel, "_CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        pair.address = silent.getsockname()
        save(pair.outputs, 1)
        pair.sender.start()
        wait_until(lambda: pair.told)
        pair.sender.finish(delivered=False)
    assert not pair.sender._thread.is_alive()
    assert len(pair.told) == 1 and "can't be reached" in pair.told[0]


def test_a_closed_port_of_copies_is_named(pair: Pair) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        pair.address = closed.getsockname()
        save(pair.outputs, 1)
        pair.sender.start()
        wait_until(lambda: pair.told)
        pair.sender.finish(delivered=False)
    (told,) = pair.told
    assert f"no connection to 127.0.0.1, port {pair.address[1]} (Connection refused)" in told
    assert "allow TCP between the nodes on ports 6800 to 6999" in told


def test_a_copy_that_fails_each_time_is_given_up(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Channel, "receive_file", full)
    save(pair.outputs, 1)
    pair.sender.start()
    wait_until(lambda: pair.told)
    time.sleep(0.2)
    assert pair.told == ["step-00000001 could not be copied, see worker.log"]
    assert pair.copied_checkpoints() == [] and not list(pair.copies.glob(".part-*"))


@pytest.mark.parametrize(("token", "owner"), [("a1\nanother", OWNER), (TOKEN, 0)])
def test_who_has_no_token_or_is_another_node_is_refused(pair: Pair, token: str, owner: int) -> None:
    with pytest.raises(OSError):
        peer_channel.connect(pair.address, token, owner).receive()


def test_an_owner_sends_nothing_to_an_impostor() -> None:
    with socket.create_server(("127.0.0.1", 0)) as impostor:
        answered = threading.Thread(target=_answer_as_impostor, args=(impostor,))
        answered.start()
        with pytest.raises(BadPeer, match="is not a node of this attempt"):
            peer_channel.connect(impostor.getsockname(), TOKEN, OWNER)
        answered.join()


def _answer_as_impostor(impostor: socket.socket) -> None:
    connection, _ = impostor.accept()
    with connection:
        connection.sendall(b"n" * 16)
        connection.recv(100)
        connection.sendall(b"p" * 32)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("..", "x"), (".hidden", "x"), ("a/b", "x"), ("", "x"), (5, "x"), ("a", "../x"),
        ("a", "/etc/x"), ("a", "b/../../x"), ("a", "x\0"), ("a", ""), ("a", "x" * 2000),
        ("a", "/".join("x" * 17)), ("a", None),
    ],
)  # fmt: skip
def test_no_owner_writes_elsewhere(pair: Pair, tmp_path: Path, name: Any, path: Any) -> None:
    before = sorted(tmp_path.rglob("*"))
    channel = pair.connect()
    channel.send({"kind": "file", "name": name, "path": path, "size": 1})
    with pytest.raises(OSError):
        channel.receive()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_that_was_changed_on_its_way_is_not_taken(pair: Pair) -> None:
    channel = pair.connect()
    channel.send({"kind": "keep", "names": ["a"]})
    assert channel.receive() == {"held": []}
    channel.send({"kind": "file", "name": "a", "path": "manifest.json", "size": 3})
    assert channel.receive() == {}
    channel._connection.sendall(b"abc" + b"\0" * 32)
    with pytest.raises(OSError):
        channel.receive()
    assert contents(pair.copies) == {}


def test_a_message_that_is_repeated_is_not_taken(pair: Pair) -> None:
    sent: list[bytes] = []
    channel = pair.connect()
    send_all = channel._connection.sendall

    class Noted:
        def sendall(self, content: bytes) -> None:
            sent.append(content)
            send_all(content)

        def __getattr__(self, name: str) -> Any:
            return getattr(connection, name)

    connection = channel._connection
    channel._connection = Noted()  # type: ignore[assignment]
    channel.send({"kind": "keep", "names": []})
    channel.receive()
    send_all(sent[0])
    with pytest.raises(OSError):
        channel.receive()
    channel._connection = connection


def test_an_owner_may_connect_again(pair: Pair) -> None:
    first = pair.connect()
    first.send({"kind": "keep", "names": []})
    first.receive()
    second = pair.connect()
    second.send({"kind": "keep", "names": []})
    second.receive()
    with contextlib.suppress(OSError):
        first.send({"kind": "keep", "names": []})
    with pytest.raises(OSError):
        first.receive()


# Whole workers

_SAVE = """
import json, os, signal, sys, time
from pathlib import Path
rank = os.environ["RANK"]
folder = Path("outputs/checkpoints/step-00000001")
folder.mkdir(parents=True)
(folder / f"part-{rank}").write_text(f"part of rank {rank}")
(folder / "new").write_text("{}")
(folder / "new").replace(folder / "manifest.json")
print("saved", flush=True)
if len(sys.argv) < 2:
    time.sleep(300)
"""
_PART = "outputs/checkpoints/step-00000001/part-1"


def _launch(bench: Bench, tmp_path: Path, argument: str = "", **changes: Any) -> Any:
    script = tmp_path / "save.py"
    script.write_text(_SAVE)
    plan = bench.plan(
        f"{sys.executable} {script} {argument}", node_count=2, single_host=False,
        node_folder=str(tmp_path / "node"), **changes,
    )  # fmt: skip
    return plan, bench.launch(plan)


def _kill_node(bench: Bench, plan: Any, node: int) -> None:
    """The worker, its supervisor and its rank at once, as a power cut does."""
    who = bench.who(plan, node)
    rank = bench.server.wait_for("ranks_started", node)["ranks"][0]["pid"]
    for pid in (who["supervisor"]["pid"], who["pid"], rank):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("peer_copies", [True, False])
def test_a_worker_delivers_for_a_node_that_was_lost_before_it_could(
    bench: Bench, tmp_path: Path, peer_copies: bool
) -> None:
    server = bench.server
    lost = threading.Event()

    def refuse(method: str, path: str) -> tuple[int, dict[str, Any]] | None:
        is_late = path.endswith("part-1") and not lost.is_set()
        return (503, {"error": {"message": "busy"}}) if is_late else None

    server.refuse = refuse
    plan, handle = _launch(bench, tmp_path, peer_copies=peer_copies)
    server.wait_until(lambda: f"{_PART[:-1]}0" in server.files, goal="node 0's part")
    copy = bench.node(plan, 0) / "peer-copies" / "step-00000001"
    if peer_copies:
        server.wait_until((copy / "manifest.json").exists, goal="node 1's copy")
        assert (copy / "part-1").read_text() == "part of rank 1"
    _kill_node(bench, plan, 1)
    server.say_stop("failed")
    server.wait_for("rank_exited", 0)
    # Only now: a request of node 1's may still be on its way when node 1 is dead.
    lost.set()
    server.wait_for("node_exited", 0)
    assert (_PART in server.files) is peer_copies
    notices = [e["body"]["message"] for e in server.events[0] if e["kind"] == "notice"]
    assert [text for text in notices if "delivered the part" in text] == peer_copies * [
        "node 0 delivered the part of step-00000001 that node 1 had not delivered"
    ]
    if peer_copies:
        assert server.files[_PART] == b"part of rank 1"
    bench.wait(handle)
    assert not copy.exists()


def test_nodes_that_end_well_deliver_each_file_once(bench: Bench, tmp_path: Path) -> None:
    server, puts = bench.server, []

    def note(method: str, path: str) -> None:
        if method == "PUT":
            puts.append(path)

    server.refuse = note
    _, handle = _launch(bench, tmp_path, "ends", peer_copies=True)
    bench.wait(handle)
    for node in (0, 1):
        end = bench.exit(node)
        assert (end["exit_code"], end["error"]) == (0, None)
        assert json.dumps(server.events[node]).count("delivered the part") == 0
    parts = [path for path in puts if "part-" in path]
    assert len(parts) == 2
