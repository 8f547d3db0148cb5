"""SDK v1's run configurations as job documents."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest

from torchyard.azureml.common.errors import NotServed
from torchyard.azureml.sdk_v1.run_configs import job_document, quoted
from torchyard.azureml.sdk_v1.run_definitions import script_of
from torchyard.base.errors import InvalidInput


def configuration(**overrides: Any) -> dict[str, Any]:
    return {
        "script": "train.py",
        "arguments": ["--epochs", 30],
        "target": "gpu-cluster",
        "framework": "Python",
        "communicator": "None",
        "nodeCount": 1,
        "environment": {"name": "e", "environmentVariables": {"A": "1"}},
        "environmentVariables": {"B": 2},
        "pytorch": {"communicationBackend": "nccl", "processCount": None, "nodeCount": 1},
        "mpi": {"processCountPerNode": 1, "nodeCount": 1},
        "data": {},
        "dataReferences": {},
        "outputData": {},
        "docker": {"useDocker": False, "arguments": [], "shmSize": "2g"},
        **overrides,
    }


def made(**overrides: Any) -> dict[str, Any]:
    return job_document(
        configuration(**overrides),
        "azureml:e:1",
        lambda request: (f"azureml:{request['name']}:1", "uri_folder"),
        lambda request: (f"azureml://datastores/{request['dataStoreName']}/paths/p", "uri_file"),
    )


def test_a_script_with_its_arguments() -> None:
    assert made() == {
        "type": "command",
        "command": "python train.py --epochs 30",
        "environment": "azureml:e:1",
        "compute": "gpu-cluster",
        "resources": {"instance_count": 1},
        "environment_variables": {"A": "1", "B": "2"},
    }


@pytest.mark.parametrize("shell", [item for item in ("dash", "bash") if shutil.which(item)])
@pytest.mark.parametrize(
    ("argument", "observed"),
    [
        ("plain", "plain"),
        ("", ""),
        ("two words", "two words"),
        ("it's", "it's"),
        ("$SET", "a b; *"),
        ("${SET}", "a b; *"),
        ("x-${SET}-$SET.pt", "x-a b; *-a b; *.pt"),
        ("$UNSET/x", "$UNSET/x"),
        ("${UNSET}", "${UNSET}"),
        ("$(id) `id` \\n", "$(id) `id` \\n"),
        ("$1 $", "$1 $"),
        (30, "30"),
        (1e-3, "0.001"),
    ],
)
def test_a_shell_sees_each_argument_as_one(shell: str, argument: Any, observed: str) -> None:
    response = subprocess.run(
        [shell, "-c", f"printf '<%s>' {quoted(argument)}"],
        env={"SET": "a b; *", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert response.stdout == f"<{observed}>"


def test_pytorchs_process_count_is_that_of_all_nodes() -> None:
    request = {"communicationBackend": "Gloo", "processCount": 8}
    result = made(framework="PyTorch", communicator="Gloo", nodeCount=2, pytorch=request)
    assert result["resources"] == {"instance_count": 2}
    assert result["distribution"] == {
        "type": "pytorch",
        "process_count_per_instance": 4,
        "communication_backend": "gloo",
    }


def test_one_process_a_node_without_a_count() -> None:
    result = made(framework="PyTorch", communicator="Nccl", nodeCount=3)
    assert result["distribution"] == {"type": "pytorch", "process_count_per_instance": 1}


def test_processes_that_can_not_be_spread_evenly_are_refused() -> None:
    with pytest.raises(InvalidInput, match="`process_count=3` can't be spread evenly"):
        made(communicator="Nccl", nodeCount=2, pytorch={"processCount": 3})


def test_mpi() -> None:
    result = made(communicator="OpenMpi", nodeCount=2, mpi={"processCountPerNode": 4})
    assert result["distribution"] == {"type": "mpi", "process_count_per_instance": 4}


def test_a_command_keeps_its_shell() -> None:
    result = made(
        script=None, command="python -m torch.distributed.run train.py $NODE_RANK | tee x"
    )
    assert result["command"] == (
        "python -m torch.distributed.run train.py $NODE_RANK | tee x --epochs 30"
    )


def test_datasets_in_arguments_become_inputs() -> None:
    item = {
        "dataLocation": {"dataset": {"name": "mnist"}},
        "mechanism": "mount",
        "environmentVariableName": "mnist",
    }
    result = made(arguments=["--data", "DatasetConsumptionConfig:mnist"], data={"mnist": item})
    assert result["inputs"]["mnist"] == {
        "type": "uri_folder",
        "path": "azureml:mnist:1",
        "mode": "ro_mount",
    }
    assert result["command"] == (
        'mnist="${{inputs.mnist}}" AZUREML_DATASET_ENVIRONMENT_VARS="mnist:ro_mount" '
        'python train.py --data "${{inputs.mnist}}"'
    )


def test_a_direct_dataset_is_given_by_its_id() -> None:
    item = {"dataLocation": {"dataset": {"name": "i", "id": "an-id"}}, "mechanism": "direct"}
    result = made(arguments=["--data", "DatasetConsumptionConfig:iris"], data={"iris": item})
    assert result["command"] == (
        'iris="an-id" AZUREML_DATASET_ENVIRONMENT_VARS="iris:direct" python train.py --data an-id'
    )


def test_references_to_data_are_variables_too() -> None:
    item = {"dataStoreName": "workspaceblobstore", "mode": "download"}
    result = made(arguments=["$AZUREML_DATAREFERENCE_d"], dataReferences={"d": item})
    assert result["inputs"]["d"]["mode"] == "download"
    assert result["command"].startswith('AZUREML_DATAREFERENCE_d="${{inputs.d}}" python train.py ')


def test_outputs() -> None:
    item = {
        "mechanism": "upload",
        "outputLocation": {
            "dataPath": {"datastoreName": "mine", "relativePath": "runs/{run-id}/{output-name}"}
        },
    }
    result = made(arguments=["DatasetOutputConfig:out"], outputData={"out": item})
    assert result["outputs"]["out"] == {
        "type": "uri_folder",
        "mode": "upload",
        "path": "azureml://datastores/mine/paths/runs/${{name}}/${{output_name}}",
    }
    assert result["command"] == 'python train.py "${{outputs.out}}"'


@pytest.mark.parametrize(
    ("overrides", "error", "message"),
    [
        ({"command": "true"}, InvalidInput, "a script and a command"),
        ({"script": None}, InvalidInput, "neither a script nor a command"),
        ({"communicator": "ParallelTask"}, NotServed, "`ParallelTask`"),
        ({"target": "amlcompute"}, NotServed, "for only one run"),
        ({"outputData": {"o": {"mechanism": "link"}}}, NotServed, "`link` of output `o`"),
    ],
)
def test_unsupported_values_are_refused(
    overrides: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        made(**overrides)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--epochs", "30", "two words", "it's", ""],
        ["$RANK", "x-${SET}.pt", "$A/$B"],
        ["--data", "DatasetConsumptionConfig:mnist", "DatasetOutputConfig:out"],
    ],
)
def test_script_and_arguments_are_read_back(arguments: list[str]) -> None:
    item = {"dataLocation": {"dataset": {"name": "mnist"}}, "mechanism": "mount"}
    command = made(arguments=arguments, data={"mnist": item})["command"]
    assert script_of(command) == ("train.py", [_plain(item) for item in arguments])


def _plain(argument: str) -> str:
    """`${A}` is returned as `$A`, which means the same."""
    return argument.replace("${SET}", "$SET")


@pytest.mark.parametrize(
    "command", ["torchrun train.py", "python -m lib", "python a.py | tee x", "python a.py 'x", "ls"]
)
def test_other_commands_have_no_script(command: str) -> None:
    assert script_of(command) == (None, [])
