"""A worker that something else than torchyard tells to end says who it was."""

from __future__ import annotations

import os
import signal

from worker.bench import Bench


def _error_of(bench: Bench) -> tuple[str, str]:
    error = bench.exit()["error"]
    return error["code"], error["message"]


def test_a_worker_whose_supervisor_is_killed_is_lost(bench: Bench) -> None:
    plan = bench.plan("sleep 315")
    handle = bench.launch(plan)
    bench.server.wait_for("ranks_started")
    os.kill(bench.who(plan)["supervisor"]["pid"], signal.SIGKILL)
    bench.wait(handle)
    assert _error_of(bench) == (
        "worker_lost",
        "the worker of node 0 was told to end: its supervisor was killed",
    )


def test_the_sender_of_a_workers_signal_is_named(bench: Bench) -> None:
    plan = bench.plan("sleep 315")
    handle = bench.launch(plan)
    bench.server.wait_for("ranks_started")
    os.kill(bench.who(plan)["pid"], signal.SIGTERM)
    bench.wait(handle)
    code, message = _error_of(bench)
    assert code == "worker_lost"
    assert f"told to end: it received SIGTERM from pid {os.getpid()} (" in message
    sender = bench.exit()["error"]["details"]["signal"]
    assert (sender["pid"], sender["uid"]) == (os.getpid(), os.getuid())
    assert f"received SIGTERM from pid {os.getpid()} (" in bench.worker_log(plan)


def test_the_sender_of_a_supervisors_signal_is_named(bench: Bench) -> None:
    plan = bench.plan("sleep 315")
    handle = bench.launch(plan)
    bench.server.wait_for("ranks_started")
    os.kill(bench.who(plan)["supervisor"]["pid"], signal.SIGTERM)
    bench.wait(handle)
    code, message = _error_of(bench)
    assert code == "worker_lost"
    assert f"its supervisor received SIGTERM from pid {os.getpid()} (" in message


def test_a_stop_by_the_executor_is_meant(bench: Bench) -> None:
    plan = bench.plan("sleep 315")
    handle = bench.launch(plan)
    bench.server.wait_for("ranks_started")
    bench.executor.stop(handle, 10.0)
    bench.wait(handle)
    assert _error_of(bench) == ("stopped", "node 0 was stopped: its executor was asked to stop it")


def test_other_nodes_hear_of_a_signal_while_they_wait_for_this_one(bench: Bench) -> None:
    plan = bench.plan("sleep 315", node_count=2)
    handle = bench.launch(plan)
    # One more than there are: the rendezvous is never complete.
    bench.server.node_count = 3
    worker = bench.who(plan, 1)
    os.kill(worker["pid"], signal.SIGTERM)
    bench.server.wait_until(
        lambda: any(
            event["kind"] == "node_stopping" and event["body"]["reason"] == "signal"
            for event in bench.server.events.get(1, [])
        ),
        goal="the signal to be reported",
    )
    bench.executor.stop(handle, 10.0)
    bench.wait(handle)
