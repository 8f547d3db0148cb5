from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from torchyard.base.errors import InvalidSpec
from torchyard.jobs.spec import inputs, job_spec

GOOD: dict[str, Any] = {"command": "python train.py", "environment": "python"}


def test_defaults() -> None:
    job = job_spec.read(GOOD)
    assert job == job_spec.JobSpec("python train.py", "python")
    assert (job.compute, job.instance_count, job.process_count_per_instance) == ("local", 1, 1)
    assert job.experiment_name == "Default"


def test_the_whole_document() -> None:
    job = job_spec.read(
        {
            "$schema": "https://azuremlschemas.azureedge.net/latest/commandJob.schema.json",
            "type": "command",
            "name": "a-1",
            "display_name": "A job!",
            "experiment_name": "exp",
            "command": "python train.py --data ${{inputs.data}} --lr ${{ inputs.lr }} "
            "--out ${{outputs.model}} $[[--x ${{inputs.absent}}]]",
            "code": "snapshot:abc",
            "environment": {"image": "python:3.11"},
            "environment_variables": {"NCCL_DEBUG": "WARN", "N": 4, "B": True},
            "inputs": {
                "data": {"type": "uri_folder", "path": "snapshot:def", "mode": "Download"},
                "lr": 0.1,
                "flag": {"value": False},
            },
            "outputs": {"model": None, "file": {"type": "uri_file", "mode": "upload"}},
            "distribution": {"type": "PyTorch", "process_count_per_instance": 4},
            "resources": {"instance_count": 2, "shm_size": "2g"},
            "limits": {"timeout": 60},
            "compute": "azureml:gpu-cluster",
            "tags": {"a": "b", "n": 1},
        }
    )
    assert job.inputs["lr"] == job_spec.Input("literal", value="0.1")
    assert job.inputs["flag"].value == "false"
    assert job.inputs["data"].mode == "download"
    assert job.outputs["model"] == job_spec.Output()
    assert job.environment_variables == {"NCCL_DEBUG": "WARN", "N": "4", "B": "true"}
    assert (job.distribution, job.process_count_per_instance, job.instance_count) == (
        "pytorch",
        4,
        2,
    )
    assert (job.compute, job.timeout_s, job.tags["n"]) == ("gpu-cluster", 60.0, "1")


BAD: list[tuple[dict[str, Any], tuple[str | int, ...], str]] = [
    ({"comand": "x"}, ("comand",), "did you mean `command`?"),
    ({"command": None}, ("command",), "say what to run"),
    ({"command": 5}, ("command",), "put it in quotes"),
    ({"environment": None}, ("environment",), "environment: python"),
    ({"environment": 3}, ("environment",), "environment: python"),
    ({"type": "sweep"}, ("type",), "type: command"),
    ({"name": "a b"}, ("name",), "255 letters"),
    ({"name": "x" * 256}, ("name",), "255 letters"),
    ({"experiment_name": "ä/b"}, ("experiment_name",), "255 letters"),
    ({"resources": {"instance_counts": 2}}, ("resources", "instance_counts"), "instance_count"),
    ({"resources": {"instance_count": 0}}, ("resources", "instance_count"), ""),
    ({"resources": {"instance_count": "2"}}, ("resources", "instance_count"), ""),
    ({"resources": {"instance_count": True}}, ("resources", "instance_count"), ""),
    ({"resources": [1]}, ("resources",), ""),
    ({"distribution": {"type": "pytorsh"}}, ("distribution", "type"), "did you mean `pytorch`?"),
    ({"distribution": {"process_count_per_instance": 2}}, ("distribution",), "type: pytorch"),
    ({"distribution": "pytorch"}, ("distribution",), ""),
    ({"inputs": {"a b": 1}}, ("inputs", "a b"), "underscores"),
    ({"inputs": {"a": {"type": "uri_folder"}}}, ("inputs", "a"), "name a file"),
    ({"inputs": {"a": {"path": "x", "mod": "y"}}}, ("inputs", "a", "mod"), "`mode`"),
    ({"inputs": {"a": {"path": "x", "value": 1}}}, ("inputs", "a"), "keep one"),
    ({"inputs": {"a": [1]}}, ("inputs", "a"), ""),
    ({"outputs": {"a": {"mode": "rw"}}}, ("outputs", "a", "mode"), "rw_mount"),
    ({"environment_variables": {"1A": "x"}}, ("environment_variables", "1A"), "underscores"),
    ({"environment_variables": {"A": [1]}}, ("environment_variables", "A"), ""),
    ({"tags": "x"}, ("tags",), ""),
    ({"limits": {"timeout": -1}}, ("limits", "timeout"), ""),
    (
        {"command": "x ${{inputs.dta}}", "inputs": {"data": 1}},
        ("command",),
        "did you mean `inputs.data`",
    ),
    ({"command": "x ${{input.data}}", "inputs": {"data": 1}}, ("command",), "${{inputs.data}}"),
    ({"command": "x ${{search_space.lr}}"}, ("command",), "sweeps"),
    ({"command": "x ${{parent.inputs.a}}"}, ("command",), "pipeline"),
    ({"command": "x $[[ ${{inputs.a}}"}, ("command",), "]]"),
    ({"command": "x ${{inputs.a", "inputs": {"a": 1}}, ("command",), "}}"),
    ({"command": "x ${{inputs.a}", "inputs": {"a": 1}}, ("command",), "}}"),
    ({"command": "x\0y"}, ("command",), "remove it"),
    ({"instance_count": 2}, ("instance_count",), "belongs under `resources`"),
    ({"resources": {"compute": "x"}}, ("resources", "compute"), "top of the job file"),
    ({"displayName": "x"}, ("displayName",), "`display_name`"),
    ({"jobs": {}, "command": None}, ("jobs",), "type: command"),
    ({"services": {"s": {"type": "custom"}}}, ("services", "s"), "write the `port`"),
    ({"services": {"s": {"port": 0}}}, ("services", "s", "port"), "from 1 to 65535"),
    ({"services": {"a/b": {"port": 80}}}, ("services", "a/b"), "letters"),
    ({"services": {"s": {"port": 80, "nodes": "1"}}}, ("services", "s", "nodes"), "`all`"),
    (
        {"services": {"s": {"properties": {"socket": "/tmp/s"}}}},
        ("services", "s", "properties", "socket"),
        "socket: inherited",
    ),
    (
        {"services": {"s": {"port": 80, "properties": {"socket": "inherited"}}}},
        ("services", "s", "properties", "socket"),
        "",
    ),
    (
        {"services": {"s": {"nodes": "all", "properties": {"socket": "inherited"}}}},
        ("services", "s", "properties", "socket"),
        "",
    ),
    ({"torchyard": {"hold": "soon"}}, ("properties", "torchyard.hold"), "`30m`"),
    ({"services": {"s": {"type": "ssh", "command": "x"}}}, ("services", "s", "command"), ""),
    ({"resources": {"docker_args": "--ipc=host -v /:/host"}}, ("resources", "docker_args"), ""),
    ({"resources": {"docker_args": "image"}}, ("resources", "docker_args"), "remove it"),
    ({"type": "pipeline", "jobs": {}}, ("type",), "type: command"),
    ({"type": "finetuning"}, ("type",), "type: command"),
    ({"type": "distillation"}, ("type",), "type: command"),
    ({"distribution": {"type": "ray", "port": 1}}, ("distribution", "type"), "ray.init"),
    (
        {"distribution": {"type": "pytorch", "worker_count": 2}},
        ("distribution", "worker_count"),
        "process_count_per_instance",
    ),
    ({"resources": {"shm_size": "2 gb"}}, ("resources", "shm_size"), "2g"),
    ({"identity": {"type": "managed"}}, ("identity", "type"), "no Azure identity"),
    ({"queue_settings": {"priority": "hgh"}}, ("queue_settings", "priority"), "`high`"),
    ({"inputs": {"a": {"path": "x", "mode": "rwMount"}}}, ("inputs", "a", "mode"), "outputs"),
    ({"inputs": {"a": {"path": "x", "mode": "evalMount"}}}, ("inputs", "a", "mode"), "ro_mount"),
    ({"inputs": {"a": {"value": 1, "mode": "download"}}}, ("inputs", "a", "mode"), "`path`"),
    ({"inputs": {"a": {"type": "number", "default": 1}}}, ("inputs", "a", "default"), "value:"),
    ({"inputs": {"a": {"type": "number"}}}, ("inputs", "a"), "give it one"),
    ({"inputs": {"a": {"type": "integer", "value": "3.5"}}}, ("inputs", "a", "value"), "`3`"),
    ({"inputs": {"a": {"type": "integer", "value": 3.0}}}, ("inputs", "a", "value"), "`3`"),
    ({"inputs": {"a": {"type": "number", "value": "fast"}}}, ("inputs", "a", "value"), "`0.1`"),
    ({"inputs": {"a": {"type": "number", "value": True}}}, ("inputs", "a", "value"), "`0.1`"),
    ({"inputs": {"a": {"type": "boolean", "value": "yes"}}}, ("inputs", "a", "value"), "`true`"),
    ({"inputs": {"a": {"value": [1]}}}, ("inputs", "a", "value"), ""),
    ({"outputs": {"a": "azureml://x"}}, ("outputs", "a"), "path: azureml://x"),
    ({"outputs": {"a": {"version": 1}}}, ("outputs", "a", "version"), "`name`"),
    ({"outputs": {"a": {"name": "a b"}}}, ("outputs", "a", "name"), "letters"),
    ({"parent_job_name": "a b"}, ("parent_job_name",), "255 letters"),
    ({"display_name": "x" * 300}, ("display_name",), "shorten"),
]


@pytest.mark.parametrize(("change", "at", "hint"), BAD)
def test_what_is_wrong_is_named_with_its_place(
    change: dict[str, Any], at: tuple[str | int, ...], hint: str
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        job_spec.read({**GOOD, **change})
    assert refused.value.at == at
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("integer", 3, "3"),
        ("integer", "-3", "-3"),
        ("number", "1e-5", "1e-5"),
        ("number", 2, "2"),
        ("boolean", False, "false"),
        ("boolean", "True", "True"),
        ("string", 1.1, "1.1"),
        ("integer", "${{parameters.a}}", "${{parameters.a}}"),
    ],
)
def test_a_value_of_its_type_is_passed_as_it_is_written(kind: str, value: Any, text: str) -> None:
    assert inputs.read_inputs({"a": {"type": kind, "value": value}}, ("inputs",)) == {
        "a": job_spec.Input("literal", value=text)
    }


def test_an_input_of_null_is_unset() -> None:
    job = job_spec.read(
        {**GOOD, "command": "x $[[ --a ${{inputs.a}} ]]", "inputs": {"a": None, "b": {"value": 2}}}
    )
    assert job.inputs == {"b": job_spec.Input("literal", value="2")}


def test_outputs_carry_their_place_and_the_name_they_get() -> None:
    job = job_spec.read(
        {**GOOD, "outputs": {"m": {"type": "mlflow_model", "mode": "Direct", "path": "azureml://"
         "datastores/d/paths/${{name}}", "name": "best", "version": 3}}}
    )  # fmt: skip
    expected = job_spec.Output("mlflow_model", "direct", "azureml://datastores/d/paths/${{name}}")
    assert job.outputs["m"] == replace(expected, name="best", version="3")


def test_what_is_kept_by_other_means_is_noticed() -> None:
    job = job_spec.read(
        {
            **GOOD,
            "compute": "Serverless",
            "resources": {"instance_type": "STANDARD_NC6"},
            "distribution": {"type": "MPI", "process_count_per_instance": 1},
        }
    )
    assert (job.compute, job.distribution) == ("local", "mpi")
    assert ["local" in job.notices[0], "NC6" in job.notices[1]] == [True, True]
    assert len(job.notices) == 3


def test_an_input_that_the_command_does_not_use_is_noticed_with_the_nearest_name() -> None:
    job = job_spec.read(
        {
            **GOOD,
            "command": "python train.py --epochs ${{inputs.epochs}} $[[--lr ${{inputs.lr}}]]"
            " --data $AZURE_ML_INPUT_data",
            "inputs": {"epochs": 3, "epoch": 1, "lr": 0.1, "data": "x", "seed": 7, "unset": None},
        }
    )
    assert job.notices == (
        "the command does not use input `epoch`; did you mean `inputs.epochs`?",
        "the command does not use input `seed`; a script finds it in $AZURE_ML_INPUT_seed",
    )


def test_an_asset_without_a_type_is_told_to_be_a_string() -> None:
    inputs = {"data": "azureml:cifar10:1", "conf": "./a.yml", "x": {"path": "azureml:cifar10:1"}}
    command = "ls ${{inputs.data}} ${{inputs.conf}} ${{inputs.x}}"
    (notice,) = job_spec.read({**GOOD, "command": command, "inputs": inputs}).notices
    assert notice == (
        "input `data` is the string `azureml:cifar10:1`, not the data of that name; write `data: "
        "{type: uri_folder, path: azureml:cifar10:1}` for a folder, `uri_file` for a file"
    )


def test_of_many_unused_inputs_some_are_named() -> None:
    job = job_spec.read({**GOOD, "inputs": {f"in_{number}": 1 for number in range(15)}})
    assert (len(job.notices), job.notices[-1]) == (11, "the command does not use 5 more inputs")


@pytest.mark.parametrize("document", [None, [], "x", 5])
def test_a_job_is_a_mapping(document: Any) -> None:
    with pytest.raises(InvalidSpec):
        job_spec.read(document)


@pytest.mark.parametrize(
    ("change", "notices"),
    [
        ({"services": {"nb": {"type": "jupyter_lab"}, "tb": {"type": "tensor_board"}}}, 0),
        ({"services": {"me": {"type": "ssh", "ssh_public_keys": "k", "nodes": "all"}}}, 1),
        ({"resources": {"docker_args": "--ipc=host --shm-size 2g --ulimit memlock=-1"}}, 1),
        ({"resources": {"docker_args": ["--gpus", "all"]}}, 1),
        ({"command": "python train.py | tee log.txt"}, 1),
        ({"command": "set -eo pipefail; python train.py | tee log.txt"}, 0),
    ],
)
def test_what_does_no_harm_is_a_notice(change: dict[str, Any], notices: int) -> None:
    spec = job_spec.read({**GOOD, **change})
    assert len(spec.notices) == notices and all("`" in notice for notice in spec.notices)


def test_variables_may_use_inputs_and_outputs() -> None:
    variables = {"OUT": "${{outputs.model}}", "MODE": "a ${{ inputs.mode }} b", "PLAIN": "$[x]"}
    job = job_spec.read(
        {
            **GOOD,
            "environment_variables": variables,
            "inputs": {"mode": "x"},
            "outputs": {"model": {}},
        }
    )
    assert job.environment_variables == variables
    assert job.notices == ()


@pytest.mark.parametrize(
    ("keys", "at", "message"),
    [
        ({"environment_variables": {"A": "${{inputs.gone}}"}}, ("environment_variables", "A"),
         "`A` uses `${{inputs.gone}}`, and that input is not defined"),
        ({"environment_variables": {"A": "${{ nothing }}"}}, ("environment_variables", "A"),
         "`${{nothing}}` is not an expression that an environment variable can use"),
        ({"environment_variables": {"A": "${{inputs.a"}}, ("environment_variables", "A"),
         "`environment_variables.A` opens `${{` and does not close it"),
        ({"environment_variables": {"A": "${inputs.a}"}}, ("environment_variables", "A"),
         "`environment_variables.A` holds `${inputs.a}`, which nothing expands"),
        ({"environment_variables": {"A": "$[[x]]"}}, ("environment_variables", "A"),
         "`environment_variables.A` holds `$[[x]]`, which only a command can have"),
        ({"environment_variables": {"${{inputs.a}}": "x"}},
         ("environment_variables", "${{inputs.a}}"),
         "`${{inputs.a}}` is not a valid name for an environment variable"),
        ({"inputs": {"a": "${{inputs.b}}"}}, ("inputs", "a"),
         "`inputs.a` holds `${{inputs.b}}`, and expressions are not resolved there"),
        ({"inputs": {"a": {"path": "azureml://${{x}}"}}}, ("inputs", "a", "path"),
         "`inputs.a.path` holds `${{x}}`, and expressions are not resolved there"),
        ({"services": {"board": {"type": "tensor_board", "log_dir": "${{outputs.logs}}"}}},
         ("services", "board", "log_dir"), "`services.board.log_dir` holds `${{outputs.logs}}`, "
         "and expressions are not resolved there"),
    ],
)  # fmt: skip
def test_an_expression_that_nothing_resolves_is_refused_with_its_place(
    keys: dict[str, Any], at: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InvalidSpec) as caught:
        job_spec.read({**GOOD, **keys})
    assert (caught.value.at, caught.value.message) == (at, message)


@pytest.mark.parametrize(
    ("value", "part"),
    [("/opt/bin:$PATH", "$PATH"), ("${HOME}/x", "${HOME}"), ("~/data", "~/"), ("/a:~/b", "~/"),
     ("--a=~/b", "~/"), ("$WORLD_SIZE", "$WORLD_SIZE"), ("$AZ_BATCH_NODE_LIST",) * 2, ("~", "~"),
     ("${root:-data}", "${root:-"), ("$A/data", "$A"), ("$(date +%s)", "$(date"), ("${A}", "${A}")],
)  # fmt: skip
def test_what_only_a_shell_expands_gets_a_notice_without_the_value(value: str, part: str) -> None:
    variables = {"A": f"secret {value}" if value[0] == "$" else value}
    (notice,) = job_spec.read({**GOOD, "environment_variables": variables}).notices
    assert notice.startswith(f"variable `A` holds `{part}` as written")
    assert "secret" not in notice and "data" not in notice


@pytest.mark.parametrize(
    "value", ["costs $5", "a~/b", "x$", "s3://b/~me", "pa$sword", "p$Xq7", "$2b$10$abc", "a$$b"]
)
def test_other_dollars_and_tildes_get_none(value: str) -> None:
    assert job_spec.read({**GOOD, "environment_variables": {"A": value}}).notices == ()


def test_keys_that_only_the_server_writes_are_not_suggested() -> None:
    with pytest.raises(InvalidSpec) as caught:
        job_spec.read({**GOOD, "zzz": 1})
    assert "creation_context" not in caught.value.hint and "inputs" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    ["{inputs.lr}", "%inputs.lr%", "<inputs.lr>", "{{inputs.lr}}", "{{ input.lr }}",
     "$(inputs.lr)", "$inputs.lr", "$({inputs.lr})"],
)  # fmt: skip
def test_the_brackets_of_another_program_get_a_notice(text: str) -> None:
    keys = {"inputs": {"lr": 0.1}, "command": f"python train.py ${{{{inputs.lr}}}} {text}"}
    (notice,) = job_spec.read({**GOOD, **keys}).notices
    assert notice == (
        f"`{text}` in the command is not an expression and is passed on as it is; write "
        "`${{inputs.lr}}`"
    )
    variables = {**keys, "command": "train ${{inputs.lr}}", "environment_variables": {"A": text}}
    (notice,) = job_spec.read({**GOOD, **variables}).notices
    assert notice.startswith(f"`{text}` in variable `A` is not an expression")
    unknown = text.replace("lr", "other")
    job = job_spec.read({**GOOD, "environment_variables": {"A": f"{unknown} {{{{x}}}}"}})
    assert not [notice for notice in job.notices if "expression" in notice]


@pytest.mark.parametrize(
    ("keys", "hint"),
    [
        ({"nodes": 2}, "write `resources: {instance_count: 2}`"),
        ({"inputs": {"a": {"local_path": "x"}}},
         "write `path: azureml:NAME:VERSION`, a URL or a local path"),
        ({"limits": {"walltime_h": 5}}, "known keys: timeout; see docs/reference/job-file.md"),
        ({"resources": {"gpus": 2}},
         "GPUs come with the size of the `compute`: see `yard compute list-sizes`"),
        ({"inputs": {"epochs": 1}, "epochs": 3}, "did you mean `inputs.epochs`?"),
        ({"inputs": {"epochs": 1}, "epohcs": 3}, "did you mean `inputs.epochs`?"),
        ({"limits": {"timeout": "2h"}}, "write seconds: `timeout: 7200`"),
        ({"limits": {"timeout": "PT1H30M"}}, "write seconds: `timeout: 5400`"),
        ({"limits": {"timeout": "90 min"}}, "write seconds: `timeout: 5400`"),
        ({"limits": {"timeout": "01:00:00"}}, "write seconds: `timeout: 3600`"),
        ({"limits": {"timeout": "soon"}}, "for example `timeout: 1`"),
        ({"command": "python train.py ${inputs.a}", "inputs": {"a": 1}}, "write `${{inputs.a}}`"),
        ({"command": "python train.py ${input.a}", "inputs": {"a": 1}}, "write `${{inputs.a}}`"),
        ({"resources": {"instance_cuont": 2}}, "did you mean `instance_count`?"),
        ({"command": "python train.py ${ input.a }", "inputs": {"a": 1}}, "write `${{inputs.a}}`"),
    ],
)  # fmt: skip
def test_what_others_call_a_key_is_told_by_its_name_here(keys: dict[str, Any], hint: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        job_spec.read({**GOOD, **keys})
    assert caught.value.hint == hint
