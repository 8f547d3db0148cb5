"""Logins that docker and podman keep."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from torchyard.base.errors import InvalidInput
from torchyard.client.images import credentials
from torchyard.client.images.credentials import Credentials

AUTH = base64.b64encode(b"me:pass:word").decode()


def write(home: Path, document: Any, name: str = ".docker/config.json") -> dict[str, str]:
    file = home / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return {"HOME": str(home), "PATH": os.environ["PATH"]}


def test_a_login_is_for_its_registry_alone(tmp_path: Path) -> None:
    variables = write(tmp_path, {"auths": {"a.example": {"auth": AUTH}}})
    assert credentials.find("a.example", variables) == Credentials("me", "pass:word")
    for stranger in ("b.example", "a.example.evil", "xa.example", "a.example:5000"):
        assert credentials.find(stranger, variables) is None


def test_podmans_file_counts_as_well(tmp_path: Path) -> None:
    name = ".config/containers/auth.json"
    variables = write(tmp_path, {"auths": {"a.example": {"auth": AUTH}}}, name)
    assert credentials.find("a.example", variables) is not None
    config = write(tmp_path, {"auths": {"b.example": {"auth": AUTH}}}, "mine.json")
    variables = {**config, "REGISTRY_AUTH_FILE": str(tmp_path / "mine.json")}
    assert credentials.find("b.example", variables) is not None


def test_docker_hub_by_its_old_address(tmp_path: Path) -> None:
    variables = write(tmp_path, {"auths": {"https://index.docker.io/v1/": {"auth": AUTH}}})
    assert credentials.find("docker.io", variables) == Credentials("me", "pass:word")


def test_an_identity_token(tmp_path: Path) -> None:
    entry = {"auth": AUTH, "identitytoken": "t0ken"}
    variables = write(tmp_path, {"auths": {"a.example": entry}})
    assert credentials.find("a.example", variables) == Credentials(identity_token="t0ken")


def test_a_program_that_keeps_passwords(tmp_path: Path) -> None:
    helper = tmp_path / "bin" / "docker-credential-box"
    helper.parent.mkdir()
    helper.write_text(
        '#!/bin/sh\nread host\necho "{\\"Username\\": \\"me\\", \\"Secret\\": \\"$host\\"}"\n'
    )
    helper.chmod(0o755)
    variables = write(tmp_path, {"credHelpers": {"a.example": "box"}})
    variables["PATH"] = f"{helper.parent}:{variables['PATH']}"
    assert credentials.find("a.example", variables) == Credentials("me", "a.example")
    assert credentials.find("b.example", variables) is None


@pytest.mark.parametrize("helper", ["../../bin/sh", "a b", "", "missing"])
def test_a_program_that_is_none(tmp_path: Path, helper: str) -> None:
    variables = write(tmp_path, {"credHelpers": {"a.example": helper}})
    assert credentials.find("a.example", variables) is None


@pytest.mark.parametrize("auth", ["%%%", base64.b64encode(b"nocolon").decode()])
def test_a_broken_login_names_its_file(tmp_path: Path, auth: str) -> None:
    variables = write(tmp_path, {"auths": {"a.example": {"auth": auth}}})
    with pytest.raises(InvalidInput, match=r"config\.json.*a\.example"):
        credentials.find("a.example", variables)
    with pytest.raises(InvalidInput, match="is not JSON"):
        credentials.find("a.example", write(tmp_path, "{"))


def test_nothing_prints_a_password(tmp_path: Path) -> None:
    text = repr(Credentials("me", "pass:word", "t0ken"))
    assert "pass" not in text.replace("password", "") and "t0ken" not in text
