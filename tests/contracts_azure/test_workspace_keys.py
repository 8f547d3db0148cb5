"""A workspace's display name, tags and other keys by Azure's SDK v2."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import client_venvs
import pytest
from yard_under_test import Yard

pytestmark = [pytest.mark.azure, pytest.mark.timeout(300)]

HERE = Path(__file__).resolve().parent
FILE = """
$schema: https://azuremlschemas.azureedge.net/latest/workspace.schema.json
name: {name}-file
location: eastus
display_name: From a file
description: As the public example of a basic workspace.
hbi_workspace: false
tags:
  purpose: demonstration
"""


# The newest and the oldest.
@pytest.mark.parametrize("client", [client_venvs.CLIENTS[0], client_venvs.CLIENTS[-1]])
def test_what_is_set_is_given_back(
    yard: Yard, variables: dict[str, str], tmp_path: Path, client: str
) -> None:
    name = "keys-" + client.rpartition("-")[2].replace(".", "-")
    yard("workspace", "config", "--path", str(tmp_path))
    (tmp_path / "workspace.yml").write_text(FILE.format(name=name))
    process = subprocess.run(
        [client_venvs.python(client), "-W", "ignore", HERE / "workspace_keys.py", name],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert process.returncode == 0, process.stderr
    printed = json.loads(process.stdout.splitlines()[-1])
    made = {
        "display_name": "Pictures of the sea",
        "description": "for a paper",
        "hbi_workspace": True,
        "tags": {"purpose": "demonstration"},
    }
    changed = {
        **made,
        "display_name": "Photos",
        "tags": {"purpose": "demonstration", "team": "vision"},
    }
    from_file = {
        "display_name": "From a file",
        "description": "As the public example of a basic workspace.",
        "hbi_workspace": False,
        "tags": {"purpose": "demonstration"},
    }
    assert printed["states"] == [made, made, changed, changed, from_file]
    assert "`key_vault` can't be honoured" in printed["refused"][0]
    assert "`public_network_access: disabled`" in printed["refused"][1]
    shown = json.loads(yard("workspace", "show", name, "-o", "json"))
    assert (shown["display_name"], shown["tags"]["team"]) == ("Photos", "vision")
    yard("az", "ml", "workspace", "update", "-n", name, "--set", "tags.x=yes")
    assert "x=yes" in yard("workspace", "show", name)
    yard("workspace", "delete", name, "--yes")
