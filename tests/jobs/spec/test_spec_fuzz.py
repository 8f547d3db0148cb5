"""Whatever stands in a job file, it is a job or an error with words and a place."""

from __future__ import annotations

import copy
import os
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchyard.base.documents import models
from torchyard.base.errors import InvalidSpec
from torchyard.jobs.spec import job_spec

EXAMPLES = int(os.environ.get("TORCHYARD_FUZZ_EXAMPLES", "300"))
WHOLE: dict[str, Any] = {
    "command": "python train.py --data ${{inputs.data}} $[[--lr ${{inputs.lr}}]]",
    "environment": {"conda_file": {"dependencies": ["python=3.11", {"pip": ["torch"]}]}},
    "environment_variables": {"A": 1, "HF_TOKEN": "hf_abcdefghijk"},
    "inputs": {
        "data": {"path": "azureml:d:1", "type": "uri_folder", "mode": "ro_mount"},
        "lr": 0.1,
    },
    "outputs": {"model": {"type": "uri_folder", "mode": "upload", "name": "m", "version": 1}},
    "distribution": {"type": "pytorch", "process_count_per_instance": 2},
    "resources": {"instance_count": 2, "shm_size": "2g", "instance_type": "x"},
    "limits": {"timeout": 10},
    "identity": {"type": "user_identity"},
    "queue_settings": {"job_tier": "spot"},
    "tags": {"a": 1, "b": "x"},
    "properties": {"torchyard.secrets": ["HF_TOKEN"], "p": 1},
    "compute": "azureml:local",
    "name": "n",
    "experiment_name": "e",
    "display_name": "d",
    "description": "…",
}
WORDS = sorted(
    {part for key in models.walk(job_spec.JobFile) for part in key.path.split(".")}
    | {"torchyard.retry.on"}
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["", "${{", "$[[", "a\0b", "\ud800", "azureml:", "x" * 300, "1e3", ".inf"]),
    st.dates(),
    st.binary(max_size=3),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.sampled_from(WORDS), LEAVES), inner, max_size=3),
    ),
    max_leaves=8,
)
CHANGES = st.lists(st.tuples(st.integers(0, 1000), TREES), min_size=1, max_size=3)
BOUNDED = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize="TORCHYARD_FUZZ_EXAMPLES" not in os.environ,
    database=None,
)


def _read(document: Any) -> None:
    try:
        job_spec.read(document)
    except InvalidSpec as error:
        assert error.message and all(isinstance(part, str | int) for part in error.at)


def _places(node: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every value of the document."""
    pairs = node.items() if isinstance(node, dict) else enumerate(node)
    keys = [(node, key) for key, _ in pairs]
    for container, key in list(keys):
        if isinstance(container[key], dict | list):
            keys += _places(container[key])
    return keys


@pytest.mark.slow
@BOUNDED
@given(CHANGES)
def test_a_whole_job_with_anything_anywhere(changes: list[tuple[int, Any]]) -> None:
    document = copy.deepcopy(WHOLE)
    for number, value in changes:
        positions = _places(document)
        container, key = positions[number % len(positions)]
        container[key] = value
    _read(document)


@pytest.mark.slow
@BOUNDED
@given(TREES)
def test_any_tree(tree: Any) -> None:
    _read(tree)


@BOUNDED
@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(
    ["command: x\n", "inputs:\n", "  a: &b [1]\n", "  c: *b\n", "- ", "? ", "{", "}", "!!set {a}\n",
     "!!python/object:os.system x\n", "environment: python\n", "<<: *b\n", "2001-01-01: 1\n"]
), max_size=8).map("".join)))  # fmt: skip
def test_any_yaml(text: str) -> None:
    try:
        tree = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):  # not YAML: told by the command that reads the file
        return
    _read(tree)


def test_the_whole_job_is_one() -> None:
    assert job_spec.read(WHOLE).properties["torchyard.secrets"] == "HF_TOKEN"


def test_a_document_that_contains_itself() -> None:
    document: dict[str, Any] = {"command": "x", "environment": "python"}
    document["tags"] = {"self": document}
    _read(document)
