"""The variables of a launcher: each form of launch sets its own and no other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import variables_page
from torchyard.shared.plan import LaunchPlan
from torchyard.worker.files.node_folders import Layout, NodeFolders
from torchyard.worker.launch import launch_forms, variables
from torchyard.worker.launch.node_setup import NodeSetup
from torchyard.worker.preflight.rendezvous import Rendezvous

HOSTS = ("10.0.0.1", "10.0.0.2")
PORTS = ((7001, 7002), (7003, 7004))
PLAN = LaunchPlan("a1", 1, "job", "default", "e", "true", "http://s", "t", "u", "/scratch")
ALL = set(launch_forms.LAUNCHER_VARIABLES)
MASTER = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "6105"}
PYTORCH = {
    **MASTER, "NODE_RANK": "1", "GROUP_RANK": "1", "RANK": "3", "LOCAL_RANK": "1",
    "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2",
}  # fmt: skip
OPEN_MPI = {
    **MASTER, "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}  # fmt: skip


def _of_rank(
    plan: LaunchPlan, node: int, local_rank: int, base: dict[str, str] | None = None
) -> dict[str, str]:
    setup = NodeSetup(
        hostname="host-b",
        folders=NodeFolders(Path(f"/scratch/node-{node}")),
        layout=Layout({}, {}, "true"),
        rendezvous=Rendezvous("10.0.0.1", 6105, HOSTS[: plan.node_count], "eth0", ports=PORTS),
        relay_url="http://127.0.0.1:5",
        temporary=Path("/tmp/short"),
        programs=None,
        cpu_count=16,
    )
    shared = variables.node_variables(base or {}, plan, node, setup)
    return variables.rank_variables(shared, plan, node, local_rank, setup.rendezvous)


@pytest.mark.parametrize(
    ("distribution", "nodes", "processes", "expected"),
    [
        ("", 1, 1, {}),
        ("", 2, 1, {**MASTER, "NODE_RANK": "1"}),
        ("pytorch", 2, 2, PYTORCH),
        ("mpi", 2, 2, OPEN_MPI),
    ],
)
def test_each_form_sets_its_own_variables_and_no_other(
    distribution: str, nodes: int, processes: int, expected: dict[str, str]
) -> None:
    plan = replace(PLAN, distribution=distribution, node_count=nodes, processes_per_node=processes)
    rank = _of_rank(plan, nodes - 1, processes - 1)
    assert {name: rank[name] for name in ALL & set(rank)} == expected
    assert set(expected) == set(launch_forms.SET_BY_FORM[launch_forms.form_of(plan)])


def test_tensorflow_sets_the_tasks_and_nothing_of_torch() -> None:
    plan = replace(
        PLAN, distribution="tensorflow", node_count=2, processes_per_node=2, parameter_servers=2
    )
    rank = _of_rank(plan, 1, 1)
    assert ALL & set(rank) == set(launch_forms.SET_BY_FORM["tensorflow"])
    config = json.loads(rank["TF_CONFIG"])
    assert config["task"] == {"type": "ps", "index": 1}
    assert config["cluster"]["worker"] == ["10.0.0.1:7001", "10.0.0.2:7003"]
    assert (rank["AZ_BATCHAI_TASK_TYPE"], rank["AZ_BATCHAI_TASK_INDEX"]) == ("ps", "1")


@pytest.mark.parametrize("distribution", ["", "pytorch", "mpi"])
def test_every_form_has_the_variables_of_azure_batch(distribution: str) -> None:
    rank = _of_rank(replace(PLAN, distribution=distribution, node_count=2), 1, 0)
    assert (rank["AZ_BATCH_MASTER_NODE"], rank["AZ_BATCHAI_MPI_MASTER_NODE"]) == (
        "10.0.0.1:6105",
        "10.0.0.1",
    )
    assert rank["HOST_LIST"] == rank["AZ_BATCH_HOST_LIST"] == "10.0.0.1,10.0.0.2"
    assert (rank["AZ_BATCHAI_TASK_INDEX"], rank["AZUREML_PROCESS_NAME"]) == ("1", "rank_1")
    assert (rank["AZUREML_CR_NODE_RANK"], rank["TORCHYARD_RANK"]) == ("1", "1")


@pytest.mark.parametrize("distribution", ["", "pytorch", "mpi", "tensorflow"])
def test_every_form_tells_the_nodes_by_all_of_azures_names(distribution: str) -> None:
    plan = replace(PLAN, distribution=distribution, node_count=2, processes_per_node=2)
    first, second = (_of_rank(plan, node, 0) for node in (0, 1))
    names = ("AZUREML_NODE_COUNT", "AZ_BATCH_NODE_LIST", "AZ_BATCHAI_JOB_MASTER_NODE_IP")
    assert [first[name] for name in names] == ["2", "10.0.0.1;10.0.0.2", "10.0.0.1"]
    assert [second[name] for name in names] == [first[name] for name in names]
    # As LightGBM's benchmark finds its rank.
    for rank, node in (first, 0), (second, 1):
        hosts = rank["AZ_BATCH_NODE_LIST"].split(";")
        assert hosts.index(rank["AZ_BATCHAI_NODE_IP"]) == node
        assert (rank["AZ_BATCH_IS_CURRENT_NODE_MASTER"] == "true") == (node == 0)


def test_one_node_has_azures_names_too() -> None:
    rank = _of_rank(PLAN, 0, 0)
    assert (rank["AZUREML_NODE_COUNT"], rank["AZ_BATCH_NODE_LIST"]) == ("1", "10.0.0.1")


def test_no_launchers_variable_of_the_machine_reaches_a_rank() -> None:
    assert not ALL & set(_of_rank(PLAN, 0, 0, dict.fromkeys(ALL, "1")))


def test_the_users_own_variables_stay() -> None:
    plan = replace(PLAN, environment_variables={"RANK": "5"})
    assert _of_rank(plan, 0, 0)["RANK"] == "5"


def test_an_elastic_job_has_the_same_variables_on_one_node() -> None:
    plan = replace(PLAN, variables={"TORCHYARD_MAX_NODES": "4"})
    assert ALL & set(_of_rank(plan, 0, 0)) == {"MASTER_ADDR", "MASTER_PORT", "NODE_RANK"}


def test_the_page_is_current() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "variables.md"
    assert page.read_text(encoding="utf-8") == variables_page.page(), "run `make docs`"


def test_the_page_has_every_variable() -> None:
    page = variables_page.page()
    assert [name for name in launch_forms.LAUNCHER_VARIABLES if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize("distribution", ["", "pytorch", "mpi", "tensorflow"])
def test_what_the_page_says_of_every_process_is_set_in_every_form(distribution: str) -> None:
    plan = replace(PLAN, distribution=distribution, node_count=2)
    assert set(variables_page.OF_EVERY_RANK) <= set(_of_rank(plan, 1, 0))


def test_each_variable_that_a_public_script_reads_is_on_the_page() -> None:
    listed = ALL | set(variables_page.OF_EVERY_RANK)
    read = {name for script in variables_page.SCRIPTS for name in script.variables.split()}
    assert read <= listed
    # Every launcher's variable is there for someone.
    assert ALL <= read
