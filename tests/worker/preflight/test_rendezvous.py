"""Nodes that meet, ports that don't collide."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import textwrap

import pytest

from torchyard.shared.failures import Failure
from torchyard.worker.preflight.ports import hold_port
from torchyard.worker.system import networks
from worker.bench import Bench

PRINT_ENVIRONMENT = f"{sys.executable} -c 'import json, os; print(json.dumps(dict(os.environ)))'"


def _environments(bench: Bench) -> list[dict[str, str]]:
    return [json.loads(bench.server.logs[name]) for name in sorted(bench.server.logs)]


def test_two_nodes_of_four(bench: Bench) -> None:
    bench.run(bench.plan(PRINT_ENVIRONMENT, node_count=2, processes_per_node=4))
    found = _environments(bench)
    assert sorted(bench.server.logs) == [f"user_logs/std_log_process_{n}.txt" for n in range(8)]
    assert [one["RANK"] for one in found] == [str(n) for n in range(8)]
    assert [one["LOCAL_RANK"] for one in found] == [str(n % 4) for n in range(8)]
    assert [one["NODE_RANK"] for one in found] == ["0"] * 4 + ["1"] * 4
    assert [one["AZ_BATCHAI_TASK_INDEX"] for one in found] == [one["RANK"] for one in found]
    assert [one["AZUREML_PROCESS_NAME"] for one in found] == [f"rank_{n}" for n in range(8)]
    for name, value in (
        ("WORLD_SIZE", "8"),
        ("LOCAL_WORLD_SIZE", "4"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("HOST_LIST", "127.0.0.1,127.0.0.1"),
        ("GLOO_SOCKET_IFNAME", networks.interface_of("127.0.0.1")),
    ):
        assert {one[name] for one in found} == {value}
    (port,) = {one["MASTER_PORT"] for one in found}
    assert 6105 <= int(port) <= 6999
    assert {one["AZ_BATCH_MASTER_NODE"] for one in found} == {f"127.0.0.1:{port}"}
    assert len({one["AZ_BATCHAI_PYTORCH_INIT_METHOD"] for one in found}) == 1


def test_ranks_of_two_nodes_talk_over_the_port(bench: Bench) -> None:
    program = """
        import os, socket, time
        there = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if os.environ["RANK"] == "0":
            listener = socket.create_server(("", there[1]))
            print(listener.accept()[0].recv(5).decode())
        else:
            for _ in range(100):
                try:
                    socket.create_connection(there).sendall(b"hello")
                    break
                except OSError:
                    time.sleep(0.05)
    """
    code = bench.server.put_snapshot({"meet.py": textwrap.dedent(program)})
    bench.run(bench.plan(f"{sys.executable} meet.py", code=code, node_count=2))
    assert bench.server.logs["user_logs/std_log_process_0.txt"] == b"hello\n"


def test_attempts_at_once_have_ports_of_their_own(bench: Bench) -> None:
    plans = [bench.plan("echo $MASTER_PORT; sleep 322") for _ in range(3)]
    handles = [bench.launch(plan) for plan in plans]
    ports: set[str] = set()

    def all_printed() -> bool:
        # One stub serves all three, so their logs are read where they are written.
        for plan in plans:
            file = bench.node(plan) / "user_logs" / "std_log.txt"
            if file.exists():
                ports.update(file.read_text().split())
        return len(ports) == 3

    bench.server.wait_until(all_printed)
    bench.server.over = True
    for handle in handles:
        bench.wait(handle)


def test_a_node_that_does_not_come_is_named(bench: Bench) -> None:
    plan = bench.plan("echo never", node_count=2, meeting_timeout_s=1.0)
    # Node 1 passes for started, and is not there.
    bench.node(plan, 1).mkdir(parents=True)
    (bench.node(plan, 1) / "worker.json").write_text('{"pid": 0, "start_time": 0}')
    handle = bench.launch(plan)
    bench.server.wait_until(lambda: bench.executor.status(handle).nodes == ("exited", "lost"))
    error = bench.exit()["error"]
    assert (error["code"], error["message"]) == (
        "meeting_timeout",
        "node 1 did not come to the meeting within 1 s",
    )


def test_a_stop_order_ends_the_wait_for_others(bench: Bench) -> None:
    plan = bench.plan("echo never", node_count=2)
    bench.plans.append(plan)
    bench.server.node_count = 3
    handle = bench.executor.launch(plan)
    bench.server.wait_until(lambda: len(bench.server.meeting) == 2)
    bench.server.say_stop("cancel")
    bench.wait(handle)
    assert bench.exit(1)["error"]["code"] == "canceled"
    assert "ranks_started" not in bench.server.kinds()


def test_between_hosts_the_address_is_never_loopback(bench: Bench) -> None:
    if all(own.startswith("127.") for own in networks.interfaces().values()):
        pytest.skip("this machine has no address but loopback")
    bench.run(bench.plan(PRINT_ENVIRONMENT, node_count=2, single_host=False))
    for one in _environments(bench):
        assert not one["MASTER_ADDR"].startswith("127.")
        assert one["GLOO_SOCKET_IFNAME"] == networks.interface_of(one["MASTER_ADDR"])


def test_a_held_port_is_nobody_elses() -> None:
    with socket.socket() as taken:
        held = hold_port(6800, 6900)
        second = hold_port(held.port, 6900)
        assert second.port > held.port
        with pytest.raises(OSError):
            taken.bind(("", held.port))
        held.open_up()
        taken.bind(("", held.port))
        # The ranks may bind it now; another job still can't.
        third = hold_port(held.port, 6900)
        assert third.port not in (held.port, second.port)
        for port in (held, second, third):
            port.close()


def test_a_port_that_some_other_program_holds_is_passed_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(Failure, match="no port") as caught:
            hold_port(port, port)
        assert caught.value.code == "no_free_port"


def test_the_lock_of_a_port_ends_with_its_process() -> None:
    program = (
        "from torchyard.worker.preflight.ports import hold_port; import time;"
        "held = hold_port(6900, 6950); print(held.port, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        port = int(holder.stdout.readline())
        try:
            with pytest.raises(Failure):
                hold_port(port, port)
        finally:
            holder.kill()
    hold_port(port, port).close()


def test_a_held_port_refuses_connections() -> None:
    # A rank that came early would else be connected, and cut off when the ranks start.
    held = hold_port(6800, 6900)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", held.port), 1.0)
    held.close()
