"""Instances that the router reaches by a Unix socket, at which nobody else can answer."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from endpoints.router.router_process import RouterProcess
from eventually import eventually
from torchyard.endpoints.router.table import DeploymentRow, InstanceRow
from torchyard.shared import unix_sockets

ONE_DATABASE = True


def test_requests_of_one_that_died_wait_for_the_next_where_one_is_started(
    router: RouterProcess,
) -> None:
    """No byte of them has been sent. Those in the queue wait on, too."""
    first = router.model("blue-1-0")
    blue = DeploymentRow((first.row(),), can_wake=True, max_queue_wait_ms=500)
    router.write({"blue": blue})
    eventually(lambda: router.request().status == 200, "the instance is known")
    first.stop()
    with ThreadPoolExecutor(8) as threads:
        held = [threads.submit(router.request) for _ in range(8)]
        eventually(lambda: router.statistics("blue")["queued"] == 8, "all of them wait")
        # The table is written for other reasons, too, before it is known there.
        router.write({"blue": replace(blue, timeout_ms=9000)})
        time.sleep(1)
        assert not any(each.done() for each in held)
        second = router.model("blue-2-0")
        router.write({"blue": replace(blue, instances=(second.row(),))})
        assert [each.result().json["from"] for each in held] == ["blue-2-0"] * 8


def test_one_that_died_is_answered_for_by_the_other_and_by_nobody_else(
    router: RouterProcess,
) -> None:
    first, second = router.model("blue-1-0"), router.model("blue-1-1")
    router.write({"blue": DeploymentRow((first.row(), second.row()))})
    names = {"blue-1-0", "blue-1-1"}
    eventually(lambda: {router.request().json["from"] for _ in range(4)} == names, "both")
    first.stop()
    for _ in range(20):
        answer = router.request()
        assert (answer.status, answer.json["from"]) == (200, "blue-1-1")


def test_without_an_instance_that_lives_there_is_an_error(
    router: RouterProcess,
) -> None:
    model = router.model("blue-1-0")
    router.write({"blue": DeploymentRow((model.row(),))})
    assert router.request().status == 200
    model.stop()
    assert router.request().status in (502, 503)
    gone = InstanceRow("blue-1-1", str(model.path.with_name("gone")))
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
