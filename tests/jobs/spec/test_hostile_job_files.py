"""Job files whose texts made the server stand still are refused at once."""

from __future__ import annotations

from typing import Any

import pytest

import steps
from torchyard.base.errors import InvalidInput, InvalidSpec
from torchyard.jobs.spec import job_spec, retry


def read(**fields: Any) -> job_spec.JobSpec:
    return job_spec.read({"command": "true", "environment": "python", **fields})


@pytest.mark.parametrize(
    "command",
    [
        "echo ${{" + " " * 30_000,
        "echo " + "${{" * 20_000,
        "echo " + "$[[" * 20_000,
        "echo " + "${{ inputs.a " * 5_000 + "}}",
        "echo $$[[x]]{{inputs.a}}",
        "x" * 200_000,
    ],
    ids=lambda command: f"{command[:16]} {len(command)}",
)
def test_a_command_is_read_in_one_pass(command: str) -> None:
    with pytest.raises(InvalidInput):
        steps.at_most(500_000, lambda: read(command=command))


def test_expressions_may_have_spaces_and_optional_parts() -> None:
    spec = read(
        command="echo ${{ inputs.a }}$[[ --b ${{inputs.b}}]]",
        inputs={"a": 1, "b": None},
    )
    assert spec.command.startswith("echo ${{ inputs.a }}")


@pytest.mark.parametrize(
    "policy",
    [
        "log /" + "\\ " * 4_000,
        "log /" + "a" * 501 + "/",
        "log /" + "(" * 400 + "/",
        ", ".join(["exit 1"] * 51),
        "[" * 9_000,
        "/" * 20_000,
    ],
    ids=lambda policy: f"{policy[:10]} {len(policy)}",
)
def test_a_retry_policy_is_bounded(policy: str) -> None:
    properties = {"torchyard.retry.max_attempts": "3", "torchyard.retry.on": policy}
    with pytest.raises(InvalidInput):
        steps.at_most(500_000, lambda: read(properties=properties))


def test_a_comma_in_a_pattern_is_the_patterns_own() -> None:
    written = r"log /a,\/b/, exit 75"
    policy = retry.read({"torchyard.retry.max_attempts": "2", "torchyard.retry.on": written})
    assert [matcher.kind for matcher in policy.on] == ["log", "exit"]
    assert policy.patterns == [r"a,\/b"]


@pytest.mark.parametrize("document", [None, 1.5, "command", [], True])
def test_what_is_no_mapping_has_no_rest(document: Any) -> None:
    with pytest.raises(InvalidSpec) as refused:
        job_spec.read(document)
    with pytest.raises(InvalidSpec) as again:
        job_spec.read_rest(document, refused.value)
    assert again.value is refused.value


def test_of_many_unknown_keys_a_few_are_told_at_once() -> None:
    document = {str(number): 1 for number in range(20_000)}

    def refused() -> None:
        with pytest.raises(InvalidInput) as error:
            job_spec.read(document)
        assert isinstance(error.value, InvalidSpec)
        assert [each.at for each in (error.value, *error.value.others)] == [
            (str(number),) for number in range(20)
        ]
        rest, _ = job_spec.read_rest(document, error.value)
        assert rest.inputs == {}

    steps.at_most(2_000_000, refused)
