"""The rendezvous of the nodes, and the ports that are held for the ranks."""

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

pytestmark = pytest.mark.slow

PRINT_ENVIRONMENT = f"{sys.executable} -c 'import json, os; print(json.dumps(dict(os.environ)))'"


def _environments(bench: Bench) -> list[dict[str, str]]:
    return [json.loads(bench.server.logs[name]) for name in sorted(bench.server.logs)]


def test_ranks_of_two_nodes_get_their_variables(bench: Bench) -> None:
    bench.run(bench.plan(PRINT_ENVIRONMENT, node_count=2, processes_per_node=4))
    environments = _environments(bench)
    assert sorted(bench.server.logs) == [f"user_logs/std_log_process_{n}.txt" for n in range(8)]
    assert [variables["RANK"] for variables in environments] == [str(n) for n in range(8)]
    assert [variables["LOCAL_RANK"] for variables in environments] == [str(n % 4) for n in range(8)]
    assert [variables["NODE_RANK"] for variables in environments] == ["0"] * 4 + ["1"] * 4
    assert [variables["AZ_BATCHAI_TASK_INDEX"] for variables in environments] == [
        variables["RANK"] for variables in environments
    ]
    assert [variables["AZUREML_PROCESS_NAME"] for variables in environments] == [
        f"rank_{n}" for n in range(8)
    ]
    for name, value in (
        ("WORLD_SIZE", "8"),
        ("LOCAL_WORLD_SIZE", "4"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("HOST_LIST", "127.0.0.1,127.0.0.1"),
        ("GLOO_SOCKET_IFNAME", networks.interface_of("127.0.0.1")),
    ):
        assert {variables[name] for variables in environments} == {value}
    (port,) = {variables["MASTER_PORT"] for variables in environments}
    assert 6105 <= int(port) <= 6999
    assert {variables["AZ_BATCH_MASTER_NODE"] for variables in environments} == {
        f"127.0.0.1:{port}"
    }
    assert len({variables["AZ_BATCHAI_PYTORCH_INIT_METHOD"] for variables in environments}) == 1


def test_ranks_of_two_nodes_connect_at_the_masters_port(bench: Bench) -> None:
    program = """
        import os, socket, time
        master = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if os.environ["RANK"] == "0":
            listener = socket.create_server(("", master[1]))
            print(listener.accept()[0].recv(5).decode())
        else:
            for _ in range(2000):
                try:
                    socket.create_connection(master).sendall(b"hello")
                    break
                except OSError:
                    time.sleep(0.05)
    """
    code = bench.server.put_snapshot({"connect.py": textwrap.dedent(program)})
    bench.run(bench.plan(f"{sys.executable} connect.py", code=code, node_count=2))
    assert bench.server.logs["user_logs/std_log_process_0.txt"] == b"hello\n"


def test_concurrent_attempts_have_different_ports(bench: Bench) -> None:
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


def test_a_node_that_does_not_join_is_named(bench: Bench) -> None:
    plan = bench.plan("echo never", node_count=2, join_timeout_s=1.0)
    # Node 1 is recorded as started, but does not run.
    bench.node(plan, 1).mkdir(parents=True)
    (bench.node(plan, 1) / "worker.json").write_text('{"pid": 0, "start_time": 0}')
    handle = bench.launch(plan)
    bench.server.wait_until(lambda: bench.executor.status(handle).nodes == ("exited", "lost"))
    error = bench.exit()["error"]
    assert (error["code"], error["message"]) == (
        "nodes_missing",
        "node 1 did not join the job within 1 s",
    )


def test_a_stop_request_ends_the_wait_for_other_nodes(bench: Bench) -> None:
    plan = bench.plan("echo never", node_count=2)
    bench.plans.append(plan)
    bench.server.node_count = 3
    handle = bench.executor.launch(plan)
    bench.server.wait_until(lambda: len(bench.server.addresses) == 2)
    bench.server.say_stop("cancel")
    bench.wait(handle)
    assert bench.exit(1)["error"]["code"] == "canceled"
    assert "ranks_started" not in bench.server.kinds()


def test_between_hosts_the_address_is_never_loopback(bench: Bench) -> None:
    if all(address.startswith("127.") for address in networks.interfaces().values()):
        pytest.skip("this machine has only a loopback address")
    bench.run(bench.plan(PRINT_ENVIRONMENT, node_count=2, single_host=False))
    for variables in _environments(bench):
        assert not variables["MASTER_ADDR"].startswith("127.")
        assert variables["GLOO_SOCKET_IFNAME"] == networks.interface_of(variables["MASTER_ADDR"])


def test_a_held_port_cannot_be_bound_by_others() -> None:
    with socket.socket() as sock:
        held_port = hold_port(6800, 6900)
        second = hold_port(held_port.port, 6900)
        assert second.port > held_port.port
        with pytest.raises(OSError):
            sock.bind(("", held_port.port))
        held_port.release()
        sock.bind(("", held_port.port))
        # The ranks can bind it now, but another job still can't.
        third = hold_port(held_port.port, 6900)
        assert third.port not in (held_port.port, second.port)
        for port in (held_port, second, third):
            port.close()


def test_a_port_that_another_program_holds_is_skipped() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
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
    # Otherwise an early rank would connect, and be cut off when the ranks start.
    held_port = hold_port(6800, 6900)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", held_port.port), 1.0)
    held_port.close()
