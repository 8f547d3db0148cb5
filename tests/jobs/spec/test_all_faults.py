"""All faults of a document are told at once, and nothing that only comes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from torchyard.base.errors import InvalidSpec, from_answer
from torchyard.batch_endpoints.spec import deployment_spec as batch_deployment_spec
from torchyard.components import documents as components
from torchyard.data import assets as data
from torchyard.endpoints.spec import deployment_spec
from torchyard.environments import assets as environments
from torchyard.jobs.spec import job_spec
from torchyard.models import documents as models
from torchyard.sweeps.spec import sweep_spec

GOOD: dict[str, Any] = {"command": "train", "environment": "python"}


def places(read: Callable[[Any], object], document: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidSpec) as caught:
        read(document)
    errors = (caught.value, *caught.value.others)
    assert all(error.hint for error in errors)
    return [".".join(map(str, error.at)) for error in errors]


def test_every_fault_of_a_job_of_the_preview() -> None:
    document = {
        "comand": "train",
        "code": {"local_path": "./src"},
        "environment": "python",
        "command": "train ${{inputs.data}} ${{inputs.epohcs}}",
        "inputs": {"data": {"paht": "azureml:d:1"}, "epochs": 3},
        "compute": {"target": "azureml:cpu", "instance_count": 2},
        "limits": {"timeout": "2h"},
        "resources": {"gpus": 2},
        "tags": {"a": ["b"]},
    }
    assert sorted(places(job_spec.read, document)) == [
        "code",
        "comand",
        "command",
        "compute",
        "inputs.data.paht",
        "limits.timeout",
        "resources.gpus",
        "tags.a",
    ]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        # What names a faulty input, and what a type of launcher takes, only follow from that fault.
        (
            {**GOOD, "command": "x ${{inputs.a}}", "inputs": {"a": {"path": 3}}, "nmae": "y"},
            ["nmae", "inputs.a.path"],
        ),
        ({**GOOD, "command": "x ${{inputs.a}}", "inputs": ["a"]}, ["inputs"]),
        ({**GOOD, "distribution": {"type": "horovod", "worker_count": 2}}, ["distribution.type"]),
        ({**GOOD, "type": "pipeline", "jobs": {"a": {}}, "settings": {}}, ["type"]),
        ({**GOOD, "torchyard": {"retri": 1}, "display_nmae": "y"}, ["display_nmae",
                                                                    "properties.torchyard.retri"]),
        ({"comand": "x", "environment": "python"}, ["comand"]),
        ({"command": "x", "limits": {"timeout": -1}}, ["limits.timeout", "environment"]),
        ({"command": " ", "environment": "python", "limits": {"timeout": -1}},
         ["command", "limits.timeout"]),
    ],
)  # fmt: skip
def test_what_comes_of_a_fault_is_none(document: dict[str, Any], expected: list[str]) -> None:
    assert sorted(places(job_spec.read, document)) == sorted(expected)


SWEEP = {
    "type": "sweep",
    "trial": {"command": "x ${{search_space.lr}}", "environment": "python", "cod": "."},
    "search_space": {"lr": {"type": "chois", "values": [1]}},
    "sampling_algorithm": "randon",
    "objective": {"goal": "less", "primary_metric": "loss"},
    "limits": {"max_trials": 3},
    "algorithm": "random",
}
DEPLOYMENT = {"name": "blue", "endpoint_name": "digits", "tags": {"a": []}, "instance_type": 3}


@pytest.mark.parametrize(
    ("read", "document", "expected"),
    [
        (
            sweep_spec.read,
            SWEEP,
            "algorithm limits.max_trials objective.goal sampling_algorithm search_space.lr.type "
            "trial.cod".split(),
        ),
        (
            components.read,
            {"name": "c", **GOOD, "local_path": "x", "inputs": {"a": {"type": "int"}}},
            ["inputs.a.type", "local_path"],
        ),
        (
            environments.read_document,
            {"name": "a b", "image": "python:3.11", "version": "a b", "tags": 3},
            ["name", "tags", "version"],
        ),
        (
            data.read_document,
            {"name": "d", "local_path": "x", "type": "uri"},
            ["local_path", "type"],
        ),
        (
            models.read,
            {"name": "m", "path": "x", "asset_path": "x", "type": "onnxx", "tags": 3},
            ["asset_path", "tags", "type"],
        ),
        (deployment_spec.read, {**DEPLOYMENT, "model": {"local_path": "x"}},
         ["instance_type", "model.local_path", "tags.a"]),
        (batch_deployment_spec.read, {**DEPLOYMENT, "instance_type": None, "error_treshold": 1},
         ["error_treshold", "instance_type", "tags.a"]),
    ],
)  # fmt: skip
def test_every_fault_of_other_documents(
    read: Callable[[Any], object], document: dict[str, Any], expected: list[str]
) -> None:
    assert sorted(places(read, document)) == sorted(expected)


def test_what_stands_below_a_misspelt_key_is_read_as_below_the_right_one() -> None:
    document = {
        "type": "sweep",
        "samplng_algorithm": "random",
        "serach_space": {"lr": {"type": "uniform", "min_vlue": 0, "max_value": 1}},
        "objective": {"goal": "minimize", "primary_metrc": "loss"},
        "trial": {"command": "x ${{space.lr}}", "environment": "python"},
        "max_total_trials": 3,
    }
    assert sorted(places(sweep_spec.read, document)) == [
        "max_total_trials",
        "objective.primary_metrc",
        "samplng_algorithm",
        "serach_space",
        "serach_space.lr.min_vlue",
        "trial.command",
    ]


def test_the_others_reach_clients() -> None:
    with pytest.raises(InvalidSpec) as caught:
        job_spec.read({**GOOD, "limits": {"timeout": -1}, "tags": 3})
    answer = from_answer(400, caught.value.to_json()["error"])
    assert [error.at for error in answer.others] == [("tags",)]
    assert answer.__notes__[1:] == ["error: `tags` must be a mapping of texts, not `3`",
                                    "hint: for example `tags: {team: vision}`"]  # fmt: skip


def test_errors_of_one_document_repeat_neither_themselves_nor_their_hints() -> None:
    first, second, third = (
        InvalidSpec(f"`{name}` is wrong", hint, at=(name,))
        for name, hint in (("a", "write b"), ("b", "write b"), ("c", "write d"))
    )
    first.add_others([second, second, InvalidSpec("`a` is wrong", "?", at=("a",)), third])
    assert first.others == (second, third)
    assert [hint for _, hint in first.all_with_hints()] == ["", "write b", "write d"]
    assert first.__notes__ == [
        "error: `b` is wrong", "hint: write b", "error: `c` is wrong", "hint: write d",
    ]  # fmt: skip
