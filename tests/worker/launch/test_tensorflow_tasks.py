"""TF_CONFIG of each task, and stopping parameter servers once no workers are left."""

from __future__ import annotations

import json
import sys
import textwrap
from typing import Any

import pytest

from worker.bench import Bench

PRINT_ENVIRONMENT = f"{sys.executable} -c 'import json, os; print(json.dumps(dict(os.environ)))'"


def _variables(bench: Bench) -> list[dict[str, Any]]:
    logs = sorted(name for name in bench.server.logs if name.startswith("user_logs/"))
    return [json.loads(bench.server.logs[name]) for name in logs]


def test_tasks_are_assigned_to_the_nodes_round_robin(bench: Bench) -> None:
    bench.run(
        bench.plan(
            PRINT_ENVIRONMENT,
            distribution="tensorflow",
            node_count=2,
            processes_per_node=2,
            parameter_servers=2,
        )
    )
    environments = _variables(bench)
    configs = [json.loads(environment["TF_CONFIG"]) for environment in environments]
    cluster = configs[0]["cluster"]
    assert [config["cluster"] for config in configs] == [cluster] * 4
    assert {kind: len(tasks) for kind, tasks in cluster.items()} == {"worker": 2, "ps": 2}
    addresses = [*cluster["worker"], *cluster["ps"]]
    assert len(set(addresses)) == 4
    assert environments[0]["AZ_BATCH_MASTER_NODE"] not in addresses
    assert [config["task"] for config in configs] == [
        {"type": "worker", "index": 0},
        {"type": "ps", "index": 0},
        {"type": "worker", "index": 1},
        {"type": "ps", "index": 1},
    ]
    assert [environment["AZ_BATCHAI_TASK_TYPE"] for environment in environments] == [
        "worker",
        "ps",
    ] * 2
    assert [environment["AZ_BATCHAI_TASK_INDEX"] for environment in environments] == [
        "0",
        "0",
        "1",
        "1",
    ]
    ranks = [environment["AZUREML_PROCESS_NAME"] for environment in environments]
    assert ranks == ["rank_0", "rank_1", "rank_2", "rank_3"]


@pytest.mark.slow
def test_tasks_connect_at_the_addresses_of_tf_config(bench: Bench) -> None:
    program = """
        import json, os, socket, time
        config = json.loads(os.environ["TF_CONFIG"])
        here = config["cluster"]["worker"][config["task"]["index"]].split(":")
        listener = socket.create_server((here[0], int(here[1])))
        if config["task"]["index"] == 0:
            print(listener.accept()[0].recv(5).decode())
        else:
            host, port = config["cluster"]["worker"][0].split(":")
            for _ in range(2000):
                try:
                    socket.create_connection((host, int(port))).sendall(b"hello")
                    break
                except OSError:
                    time.sleep(0.05)
    """
    code = bench.server.put_snapshot({"task.py": textwrap.dedent(program)})
    command = f"{sys.executable} task.py"
    bench.run(bench.plan(command, code=code, distribution="tensorflow", node_count=2))
    assert bench.server.logs["user_logs/std_log_process_0.txt"] == b"hello\n"
    assert [bench.exit(node)["exit_code"] for node in (0, 1)] == [0, 0]


def test_stopped_parameter_servers_count_as_succeeded(bench: Bench) -> None:
    plan = bench.plan(
        'if [ "$AZ_BATCHAI_TASK_TYPE" = ps ]; then sleep 314; fi',
        distribution="tensorflow",
        processes_per_node=3,
        parameter_servers=2,
    )
    handle = bench.launch(plan)
    bench.server.wait_for("node_serving")
    assert bench.server.kinds().count("rank_exited") == 1
    bench.server.say_stop("served")
    bench.wait(handle)
    assert (bench.exit()["exit_code"], bench.exit()["error"]) == (0, None)
    assert bench.server.kinds().count("node_serving") == 1
    bench.wait_until_none_left(plan)


def test_a_failed_parameter_server_is_reported(bench: Bench) -> None:
    plan = bench.plan(
        'if [ "$AZ_BATCHAI_TASK_TYPE" = ps ]; then exit 6; fi; sleep 315',
        distribution="tensorflow",
        processes_per_node=2,
        parameter_servers=1,
    )
    bench.run(plan)
    assert bench.exit()["error"]["message"].startswith("rank 1 on node 0 exited with code 6")
    bench.wait_until_none_left(plan)
