"""Folders, placeholders and variables of a node, without processes or a server."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from ordinary_user import as_an_ordinary_user
from torchyard.shared.connection import Connection
from torchyard.shared.failures import Failure
from torchyard.shared.plan import InputPlan, LaunchPlan
from torchyard.shared.server_address import ServerAddress
from torchyard.worker.files import inputs
from torchyard.worker.files.blobs import Blobs, relative_path
from torchyard.worker.files.node_folders import (
    Layout,
    NodeFolders,
    clean,
    fill_in,
    lay_out,
    make_folders,
)
from torchyard.worker.files.uploads import files_below
from torchyard.worker.launch import variables
from torchyard.worker.launch.node_setup import NodeSetup
from torchyard.worker.launch.ranks import plan_ranks
from torchyard.worker.preflight.rendezvous import Rendezvous
from torchyard.worker.system import temporary

PLAN = LaunchPlan(
    attempt_id="att",
    attempt=1,
    job="job",
    workspace="default",
    experiment="exp",
    command="true",
    server_url="http://127.0.0.1:1",
    report_token="yard_a_x",
    run_token="yard_r_x",
    scratch="/scratch/att",
    node_count=2,
    processes_per_node=2,
    distribution="pytorch",
    single_host=True,
    variables={"AZUREML_RUN_ID": "job", "MLFLOW_RUN_ID": "job"},
)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("train ${{inputs.data}}", "train /in/data"),
        ("train ${{ inputs.data }}/x ${{outputs.model}}", "train /in/data/x /out/model"),
        ("${{inputs.data.path}}", "/in/data"),
        ("a $[[ --data ${{inputs.data}} ]] b", "a  --data /in/data  b"),
        ("a $[[--opt ${{inputs.absent}}]] b", "a  b"),
        ("echo $HOME ${RANK} $((1+1))", "echo $HOME ${RANK} $((1+1))"),
        ("two\nlines ${{inputs.my-name_1}}", "two\nlines 7"),
    ],
)
def test_placeholders_are_filled_in(command: str, expected: str) -> None:
    inputs = {"data": "/in/data", "my-name_1": "7"}
    assert fill_in(command, inputs, {"model": "/out/model"}) == expected


def test_an_unknown_placeholder_is_named() -> None:
    with pytest.raises(Failure, match=r"inputs\.typo"):
        fill_in("train ${{inputs.typo}}", {"data": "x"}, {})


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", "a\0b", "."])
def test_paths_that_leave_their_folder_are_refused(path: str) -> None:
    with pytest.raises(Failure):
        relative_path(path)


def test_logs_are_named_as_azure_ml_names_them() -> None:
    def names(node: int, per_node: int, world: int) -> list[str]:
        return [rank.log_name for rank in plan_ranks(node, per_node, world, Path("/l"))]

    assert names(0, 1, 1) == ["user_logs/std_log.txt"]
    assert names(1, 1, 2) == ["user_logs/std_log_process_1.txt"]
    assert names(1, 8, 16)[0] == "user_logs/std_log_process_08.txt"
    assert names(0, 8, 8)[7] == "user_logs/std_log_process_7.txt"
    assert names(0, 1, 10) == ["user_logs/std_log_process_0.txt"]
    assert names(0, 1, 11) == ["user_logs/std_log_process_00.txt"]


def _environment(base: dict[str, str], plan: LaunchPlan = PLAN, node: int = 1) -> dict[str, str]:
    setup = NodeSetup(
        hostname="host-b",
        folders=NodeFolders(Path("/scratch/att/node-1")),
        layout=Layout({"data": "/in/data"}, {"model": "/out/model"}, "true"),
        rendezvous=Rendezvous("127.0.0.1", 6105, ("127.0.0.1", "127.0.0.1"), "lo"),
        relay_url="http://127.0.0.1:5",
        temporary=Path("/tmp/short"),
        programs=Path("/scratch/att/node-1/env/bin"),
        cpu_count=16,
    )
    shared = variables.node_variables(base, plan, node, setup)
    return variables.rank_variables(shared, plan, node, 1, setup.rendezvous)


def test_ranks_have_the_variables_of_azure_ml() -> None:
    variables = _environment({"PATH": "/usr/bin", "HOME": "/root"})
    work = "/scratch/att/node-1/work"
    expected = {
        "AZUREML_CR_EXECUTION_WORKING_DIR_PATH": work,
        "AZUREML_CR_NODE_RANK": "1",
        "AZUREML_LOGDIRECTORY_PATH": f"{work}/logs",
        "AZUREML_NODE_COUNT": "2",
        "AZUREML_OUTPUT_DIRECTORY": f"{work}/outputs",
        "AZUREML_PROCESS_NAME": "rank_3",
        "AZUREML_RUN_ID": "job",
        "AZURE_ML_INPUT_data": "/in/data",
        "AZURE_ML_OUTPUT_model": "/out/model",
        "AZ_BATCHAI_JOB_MASTER_NODE_IP": "127.0.0.1",
        "AZ_BATCHAI_JOB_TEMP": "/tmp/short",
        "AZ_BATCHAI_MPI_MASTER_NODE": "127.0.0.1",
        "AZ_BATCHAI_NODE_IP": "127.0.0.1",
        "AZ_BATCHAI_PYTORCH_INIT_METHOD": "file:///scratch/att/pytorch-rendezvous",
        "AZ_BATCHAI_TASK_INDEX": "3",
        "AZ_BATCH_HOST_LIST": "127.0.0.1,127.0.0.1",
        "AZ_BATCH_IS_CURRENT_NODE_MASTER": "false",
        "AZ_BATCH_MASTER_NODE": "127.0.0.1:6105",
        "AZ_BATCH_NODE_LIST": "127.0.0.1;127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
        "GROUP_RANK": "1",
        "HOME": "/root",
        "HOST_LIST": "127.0.0.1,127.0.0.1",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "6105",
        "MLFLOW_RUN_ID": "job",
        "MLFLOW_TRACKING_TOKEN": "yard_r_x",
        "MLFLOW_TRACKING_URI": "http://127.0.0.1:5",
        "NODE_RANK": "1",
        "NO_PROXY": "127.0.0.1",
        "OMP_NUM_THREADS": "4",
        "PATH": "/scratch/att/node-1/env/bin:/usr/bin",
        "PWD": work,
        "PYTHONUNBUFFERED": "1",
        "RANK": "3",
        "TMPDIR": "/tmp/short",
        "TORCHYARD_ATTEMPT": "att:1",
        "TORCH_EXTENSIONS_DIR": "/tmp/short/torch_extensions",
        "WORLD_SIZE": "4",
        "no_proxy": "127.0.0.1",
    }
    assert {name: variables.get(name) for name in expected} == expected
    assert set(variables) - set(expected) == {
        "AZUREML_CR_COMPUTE_CONTEXT",
        "AZUREML_CR_DISTRIBUTED_CONFIG",
        "AZURE_CONFIG_DIR",
        "TORCHYARD_CHECKPOINTS",
        "TORCHYARD_RANK",
        "TORCHYARD_RELAY",
        "TORCHYARD_RESUMED",
    }


def test_variables_override_each_other_in_order() -> None:
    base = {
        "TORCHYARD_TOKEN": "secret",
        "TORCHYARD_HOME": "/h",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": "/p",
        "PYTHONHOME": "/p",
        "VIRTUAL_ENV": "/v",
        "OMP_NUM_THREADS": "3",
        "RANK": "99",
        "NCCL_DEBUG": "INFO",
        "NO_PROXY": "intranet",
    }
    plan = replace(
        PLAN, environment_variables={"GLOO_SOCKET_IFNAME": "eth7", "MASTER_PORT": "1", "LR": "0.1"}
    )
    variables = _environment(base, plan)
    for name in list(base)[:6]:
        assert name not in variables
    assert (variables["OMP_NUM_THREADS"], variables["RANK"], variables["NCCL_DEBUG"]) == (
        "3",
        "3",
        "INFO",
    )
    assert (variables["GLOO_SOCKET_IFNAME"], variables["MASTER_PORT"], variables["LR"]) == (
        "eth7",
        "1",
        "0.1",
    )
    assert variables["no_proxy"] == variables["NO_PROXY"] == "intranet,127.0.0.1"
    hidden = replace(PLAN, environment_variables={"TORCHYARD_ATTEMPT": "other:0"})
    assert _environment({}, hidden)["TORCHYARD_ATTEMPT"] == "att:1"


def test_a_long_temporary_folder_gets_a_short_name(tmp_path: Path) -> None:
    node = tmp_path / ("x" * 80)
    (node / "tmp").mkdir(parents=True)
    short = temporary.shorten(node / "tmp")
    assert len(str(short)) < 40
    (short / "file").write_text("x")
    assert (node / "tmp" / "file").read_text() == "x"
    assert temporary.shorten(node / "tmp") == short
    temporary.forget(node)
    assert not os.path.lexists(short)
    assert temporary.shorten(Path("/tmp/x")) == Path("/tmp/x")


def test_a_link_to_another_folder_is_not_used(tmp_path: Path) -> None:
    node = tmp_path / ("y" * 80)
    (node / "tmp").mkdir(parents=True)
    short = temporary.shorten(node / "tmp")
    short.unlink()
    short.symlink_to(tmp_path)
    assert temporary.shorten(node / "tmp") == node / "tmp"
    temporary.forget(node)
    assert short.is_symlink()
    short.unlink()


def test_links_in_outputs_are_followed_but_not_in_cycles(tmp_path: Path) -> None:
    outputs, elsewhere = tmp_path / "outputs", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "big.bin").write_text("x")
    (outputs / "a").mkdir(parents=True)
    (outputs / "a" / "m.pt").write_text("x")
    (outputs / "latest").symlink_to(outputs / "a")
    (outputs / "a" / "up").symlink_to(outputs)
    (outputs / "data").symlink_to(elsewhere)
    (outputs / "gone").symlink_to(tmp_path / "nothing")
    os.mkfifo(outputs / "pipe")
    paths = {str(file.relative_to(outputs)) for file in files_below(outputs)}
    assert paths == {"a/m.pt", "latest/m.pt", "data/big.bin"}


def test_read_only_inputs_cannot_be_written_but_can_be_removed() -> None:
    # Only an ordinary user is held back by permissions, and only a link saves the copy.
    with as_an_ordinary_user() as home:
        content = b"precious"
        blob = _put_blob(home, content)
        script = {"path": "run.sh", "sha256": blob, "size": 8, "mode": "0755"}
        data = {"path": "a/b.txt", "sha256": blob, "size": 8, "mode": "0644"}
        snapshot = _put_blob(home, json.dumps({"files": [data, script]}).encode())
        input_plans = {
            "ro": InputPlan("uri_folder", snapshot=snapshot),
            "mine": InputPlan("uri_folder", snapshot=snapshot, mode="download"),
        }
        plan = replace(PLAN, code=snapshot, inputs=input_plans)
        folders = NodeFolders(home / "node-0")
        make_folders(folders)
        link = Connection.of_attempt(ServerAddress("http://127.0.0.1:1"), "", "att")
        layout = lay_out(plan, folders, Blobs(link, str(home / "blobs"), lambda: False))
        read_only = Path(layout.inputs["ro"])
        assert (read_only / "a" / "b.txt").read_bytes() == content
        assert os.access(read_only / "run.sh", os.X_OK)
        if os.geteuid() != 0:
            assert (read_only / "a" / "b.txt").stat().st_nlink == 2
            with pytest.raises(PermissionError):
                (read_only / "a" / "b.txt").write_bytes(b"")
            with pytest.raises(PermissionError):
                (read_only / "new").touch()
        (Path(layout.inputs["mine"]) / "a" / "b.txt").write_bytes(b"other")
        (folders.work / "a" / "b.txt").write_bytes(b"other")
        assert (folders.work / "run.sh").stat().st_mode & 0o777 == 0o755
        folder = os.getcwd()
        clean(folders)
        os.chdir(folder)
        assert list(folders.node.iterdir()) == []
        assert (home / "blobs" / blob[:2] / blob).read_bytes() == content


def test_inputs_of_root_are_copies() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root writes to read-only files")
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        blob = _put_blob(home, b"precious")
        entry = {"path": "b.txt", "sha256": blob, "size": 8, "mode": "0644"}
        snapshot = _put_blob(home, json.dumps({"files": [entry]}).encode())
        plan = replace(PLAN, inputs={"ro": InputPlan("uri_file", snapshot=snapshot)})
        folders = NodeFolders(home / "node-0")
        make_folders(folders)
        blobs = Blobs(
            Connection.of_attempt(ServerAddress("http://127.0.0.1:1"), "", "att"),
            str(home / "blobs"),
            lambda: False,
        )
        Path(lay_out(plan, folders, blobs).inputs["ro"]).write_bytes(b"spoilt")
        assert (home / "blobs" / blob[:2] / blob).read_bytes() == b"precious"


def _put_blob(home: Path, content: bytes) -> str:
    sha256 = hashlib.sha256(content).hexdigest()
    file = home / "blobs" / sha256[:2] / sha256
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    file.chmod(0o444)
    return sha256


def test_what_the_jobs_user_cannot_read_is_downloaded(tmp_path: Path) -> None:
    local, far = tmp_path / "near", tmp_path / "far.csv"
    local.mkdir()
    (local / "a.csv").write_text("a")
    folder = tmp_path / "inputs"
    folder.mkdir()
    input_plans = {
        name: InputPlan(kind, mode="download", source=str(source))
        for name, kind, source in (("near", "uri_folder", local), ("far", "uri_file", far))
    }
    fetched = []

    def fetch(name: str) -> Path:
        fetched.append(name)
        target = folder.parent / f"fetched-{name}"
        target.write_text(name)
        return target

    link = Connection.of_attempt(ServerAddress("http://127.0.0.1:1"), "", "att")
    blobs = Blobs(link, "", lambda: False)
    placed = inputs.place_inputs(input_plans, folder, blobs, fetch, sees_disk=True)
    assert fetched == ["far"]
    assert (Path(placed.values["near"]) / "a.csv").read_text() == "a"
    assert Path(placed.values["far"]).read_text() == "far"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (local / "a.csv").unlink()
    local.rmdir()
    local.write_text("another machine's")
    inputs.place_inputs(input_plans, elsewhere, blobs, fetch)
    assert fetched == ["far", "near", "far"]
