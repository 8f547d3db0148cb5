"""Writers on two machines save; one machine is lost, and its peer's copy makes the whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from torchyard.shared.connection import Connection
from torchyard.shared.server_address import ServerAddress
from torchyard.worker.node import peer_channel, peer_keeper
from torchyard.worker.node.checkpoint_delivery import CheckpointDelivery
from torchyard.worker.node.peer_keeper import PeerKeeper, Space
from torchyard.worker.node.peer_sender import PeerSender
from torchyard.worker.preflight.ports import hold_port
from train import training_ranks
from worker.stub_server import running

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
_TOKEN = "a1\nyard_a_test"


@pytest.mark.parametrize(("is_copied", "loaded"), [(True, [5, 1.5]), (False, [4, 0.5])])
def test_the_newest_checkpoint_is_whole_without_the_lost_machine(
    tmp_path: Path, is_copied: bool, loaded: list[float]
) -> None:
    with running() as stub:
        link = Connection.of_attempt(ServerAddress(stub.url), "yard_a_test", "a1")
        survivor, lost = tmp_path / "machine-0", tmp_path / "machine-1"
        deliveries = [CheckpointDelivery(link, machine) for machine in (survivor, lost)]
        training_ranks.run("train.rank_functions:save_apart", 3, str(tmp_path))
        newest = lost / "checkpoints" / "step-00000005"
        # The first checkpoint is delivered by both, the second not by the machine that is lost.
        aside = shutil.move(newest, tmp_path / "aside")
        for delivery in deliveries:
            delivery.deliver()
        shutil.move(aside, newest)
        if is_copied:
            _copy_and_deliver(deliveries[1], link, tmp_path / "copies")
        link.close()
        shutil.rmtree(tmp_path)
        for machine in (survivor, lost):  # as each node of the next attempt finds it
            for path, content in stub.files.items():
                file = machine / path.removeprefix("outputs/")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
    answers = training_ranks.run("train.rank_functions:load_apart", 3, str(tmp_path))
    assert answers == [loaded] * 3


def _copy_and_deliver(delivery: CheckpointDelivery, link: Connection, copies: Path) -> None:
    port = hold_port(6800)
    keeper = PeerKeeper(port, _TOKEN, 1, copies, Space(reserve_bytes=0))
    keeper.start()
    address = ("127.0.0.1", port.port)
    messages: list[str] = []
    sender = PeerSender(
        delivery, lambda: peer_channel.connect(address, _TOKEN, 1), messages.append, every_s=0.01
    )
    sender.copy()
    sender.start()
    sender.finish(delivered=False)
    keeper.close()
    assert not messages
    assert peer_keeper.deliver(link, copies, lambda: False) == ["step-00000005"]
