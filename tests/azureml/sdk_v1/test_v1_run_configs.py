"""SDK v1's run configurations, made job documents."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest

from torchyard.azureml.common.errors import NotServed
from torchyard.azureml.sdk_v1.run_configs import job_document, quoted
from torchyard.azureml.sdk_v1.run_definitions import script_of
from torchyard.base.errors import InvalidInput


def configuration(**more: Any) -> dict[str, Any]:
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
        **more,
    }


def made(**more: Any) -> dict[str, Any]:
    return job_document(
        configuration(**more),
        "azureml:e:1",
        lambda asked: (f"azureml:{asked['name']}:1", "uri_folder"),
        lambda asked: (f"azureml://datastores/{asked['dataStoreName']}/paths/p", "uri_file"),
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


@pytest.mark.parametrize("shell", [one for one in ("dash", "bash") if shutil.which(one)])
@pytest.mark.parametrize(
    ("argument", "seen"),
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
def test_a_shell_sees_each_argument_as_one(shell: str, argument: Any, seen: str) -> None:
    told = subprocess.run(
        [shell, "-c", f"printf '<%s>' {quoted(argument)}"],
        env={"SET": "a b; *", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == f"<{seen}>"


def test_processes_of_pytorch_are_those_of_all_nodes() -> None:
    asked = {"communicationBackend": "Gloo", "processCount": 8}
    found = made(framework="PyTorch", communicator="Gloo", nodeCount=2, pytorch=asked)
    assert found["resources"] == {"instance_count": 2}
    assert found["distribution"] == {
        "type": "pytorch",
        "process_count_per_instance": 4,
        "communication_backend": "gloo",
    }


def test_one_process_a_node_without_a_count() -> None:
    found = made(framework="PyTorch", communicator="Nccl", nodeCount=3)
    assert found["distribution"] == {"type": "pytorch", "process_count_per_instance": 1}


def test_processes_that_can_not_be_spread() -> None:
    with pytest.raises(InvalidInput, match="`process_count=3` can't be spread evenly"):
        made(communicator="Nccl", nodeCount=2, pytorch={"processCount": 3})


def test_mpi() -> None:
    found = made(communicator="OpenMpi", nodeCount=2, mpi={"processCountPerNode": 4})
    assert found["distribution"] == {"type": "mpi", "process_count_per_instance": 4}


def test_a_command_keeps_its_shell() -> None:
    found = made(script=None, command="python -m torch.distributed.run train.py $NODE_RANK | tee x")
    assert found["command"] == (
        "python -m torch.distributed.run train.py $NODE_RANK | tee x --epochs 30"
    )


def test_datasets_in_arguments_become_inputs() -> None:
    one = {
        "dataLocation": {"dataset": {"name": "mnist"}},
        "mechanism": "mount",
        "environmentVariableName": "mnist",
    }
    found = made(arguments=["--data", "DatasetConsumptionConfig:mnist"], data={"mnist": one})
    assert found["inputs"]["mnist"] == {
        "type": "uri_folder",
        "path": "azureml:mnist:1",
        "mode": "ro_mount",
    }
    assert found["command"] == (
        'mnist="${{inputs.mnist}}" AZUREML_DATASET_ENVIRONMENT_VARS="mnist:ro_mount" '
        'python train.py --data "${{inputs.mnist}}"'
    )


def test_a_direct_dataset_is_given_by_its_id() -> None:
    one = {"dataLocation": {"dataset": {"name": "i", "id": "an-id"}}, "mechanism": "direct"}
    found = made(arguments=["--data", "DatasetConsumptionConfig:iris"], data={"iris": one})
    assert found["command"] == (
        'iris="an-id" AZUREML_DATASET_ENVIRONMENT_VARS="iris:direct" python train.py --data an-id'
    )


def test_references_to_data_are_variables_too() -> None:
    one = {"dataStoreName": "workspaceblobstore", "mode": "download"}
    found = made(arguments=["$AZUREML_DATAREFERENCE_d"], dataReferences={"d": one})
    assert found["inputs"]["d"]["mode"] == "download"
    assert found["command"].startswith('AZUREML_DATAREFERENCE_d="${{inputs.d}}" python train.py ')


def test_outputs() -> None:
    one = {
        "mechanism": "upload",
        "outputLocation": {
            "dataPath": {"datastoreName": "mine", "relativePath": "runs/{run-id}/{output-name}"}
        },
    }
    found = made(arguments=["DatasetOutputConfig:out"], outputData={"out": one})
    assert found["outputs"]["out"] == {
        "type": "uri_folder",
        "mode": "upload",
        "path": "azureml://datastores/mine/paths/runs/${{name}}/${{output_name}}",
    }
    assert found["command"] == 'python train.py "${{outputs.out}}"'


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"command": "true"}, InvalidInput, "a script and a command"),
        ({"script": None}, InvalidInput, "neither a script nor a command"),
        ({"communicator": "ParallelTask"}, NotServed, "`ParallelTask`"),
        ({"target": "amlcompute"}, NotServed, "as long as one run"),
        ({"outputData": {"o": {"mechanism": "link"}}}, NotServed, "`link` of output `o`"),
    ],
)
def test_what_is_refused(more: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        made(**more)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--epochs", "30", "two words", "it's", ""],
        ["$RANK", "x-${SET}.pt", "$A/$B"],
        ["--data", "DatasetConsumptionConfig:mnist", "DatasetOutputConfig:out"],
    ],
)
def test_script_and_arguments_come_back(arguments: list[str]) -> None:
    one = {"dataLocation": {"dataset": {"name": "mnist"}}, "mechanism": "mount"}
    command = made(arguments=arguments, data={"mnist": one})["command"]
    assert script_of(command) == ("train.py", [_plain(one) for one in arguments])


def _plain(argument: str) -> str:
    """`${A}` comes back as `$A`, which means the same."""
    return argument.replace("${SET}", "$SET")


@pytest.mark.parametrize(
    "command", ["torchrun train.py", "python -m lib", "python a.py | tee x", "python a.py 'x", "ls"]
)
def test_what_is_no_script(command: str) -> None:
    assert script_of(command) == (None, [])
