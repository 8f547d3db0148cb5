"""`--rehearse-on-cpu`, and the same in Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import Yard
from cli.served_workspace import ServedWorkspace
from torchyard.client.command_jobs import command

PROPERTY = "torchyard.rehearse_on_cpu"


@pytest.mark.parametrize("properties", ["", "properties: {mine: 1}\n", "properties:\n"])
def test_the_option_is_a_property_beside_the_others(
    server: ServedWorkspace, yard: Yard, properties: str
) -> None:
    Path("job.yml").write_text(f"command: x\nenvironment: python\n{properties}")
    assert yard("job", "create", "-f", "job.yml", "-n", "a").code == 0
    assert yard("job", "create", "-f", "job.yml", "-n", "b", "--rehearse-on-cpu").code == 0
    plain, rehearsed = (server.document(name).get("properties") or {} for name in "ab")
    assert PROPERTY not in plain
    assert rehearsed == {**plain, PROPERTY: "true"}


def test_the_sdk_has_it_as_an_argument() -> None:
    def properties(rehearse_on_cpu: bool | None = None) -> object:
        made = command(
            command="x",
            environment="python",
            properties={"mine": "1"},
            rehearse_on_cpu=rehearse_on_cpu,
        )
        return made.to_dict()["properties"]

    assert properties() == {"mine": "1"}
    assert properties(rehearse_on_cpu=True) == {"mine": "1", PROPERTY: "true"}
    assert properties(rehearse_on_cpu=False) == {"mine": "1", PROPERTY: "false"}
    assert "properties" not in command(command="x", environment="python").to_dict()
