"""A build context in a job, as azure-ai-ml sends it: in a job's file, by the SDK, with a name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import client_venvs
import pytest
from yard_under_test import Yard

pytestmark = [
    pytest.mark.azure,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        shutil.which("podman") is None and os.environ.get("TORCHYARD_TEST_SERVICES") != "required",
        reason="podman is not here: apt-get install podman",
    ),
]

ANONYMOUS = "CliV2AnonymousEnvironment"
# No registry has the name: what comes after the client is the engine's, and other tests'.
DOCKERFILE = "FROM registry.invalid/team/base:1\nCOPY requirements.txt .\n"
JOB = """\
$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json
code: src
command: python main.py
environment:
  build:
    path: Docker Umgebung ä
compute: azureml:local
"""
SUBMIT = """\
import json, sys, warnings
warnings.filterwarnings("ignore")
from azure.ai.ml import MLClient, command, load_job
from azure.ai.ml.entities import BuildContext, Environment
from azure.identity import DefaultAzureCredential
config, folder, prefix = sys.argv[1:]
ml = MLClient.from_config(DefaultAzureCredential(), path=config)
def environment(dockerfile=None, **named):
    # One of its own each: the client writes where it has put the folder into it.
    context = BuildContext(path=f"{folder}/Docker Umgebung ä", dockerfile_path=dockerfile)
    return Environment(build=context, **named)
def job(environment, **options):
    return command(command="true", compute="local", environment=environment, **options)
jobs = {
    "file": load_job(f"{folder}/job.yml"),
    "sdk": job(environment()),
    "named": job(environment(name=prefix, version="7")),
    "other": job(environment("other/Dockerfile")),
}
seen = {}
for word, each in jobs.items():
    each.name = f"{prefix}-{word}"
    made = ml.jobs.create_or_update(each)
    seen[word] = {"job": made.name, "environment": str(ml.jobs.get(made.name).environment)}
registered = ml.environments.create_or_update(environment(name=f"{prefix}-registered"))
again = ml.environments.get(registered.name, label="latest")
seen["registered"] = [again.build.path, again.build.dockerfile_path]
by_name = ml.jobs.create_or_update(job(again, name=f"{prefix}-by-name"))
seen["by-name"] = {"job": by_name.name, "environment": str(by_name.environment)}
print(json.dumps(seen))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "job.yml": JOB,
        "src/main.py": "print(1)\n",
        "Docker Umgebung ä/Dockerfile": DOCKERFILE,
        "Docker Umgebung ä/requirements.txt": "six\n",
        "Docker Umgebung ä/other/Dockerfile": DOCKERFILE.replace("base:1", "base:2"),
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


@pytest.mark.parametrize("client", client_venvs.CLIENTS)
def test_a_build_context_in_a_job_reaches_the_server(
    yard: Yard, variables: dict[str, str], folder: Path, client: str
) -> None:
    prefix = f"context-{client.replace('.', '-')}"
    yard("workspace", "config", "--path", str(folder))
    config = folder / ".azureml" / "config.json"
    command: list[Any] = [client_venvs.python(client), "-c", SUBMIT, config, folder, prefix]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["registered"][1] == "Dockerfile"
    assert seen["registered"][0].startswith("https://")
    found = {word: _dockerfile(yard, f"{prefix}-{word}") for word in seen if word != "registered"}
    (context, file), other = found["file"], found["other"]
    assert (file, other) == ("Dockerfile", (context, "other/Dockerfile"))
    assert set(found.values()) == {(context, file), other}
    manifest = yard.get(f"snapshots/{context}")
    assert sorted(entry["path"] for entry in manifest["files"]) == [
        "Dockerfile",
        "other/Dockerfile",
        "requirements.txt",
    ]
    names = {word: _environment(yard, f"{prefix}-{word}").split(":")[1] for word in found}
    assert names == {
        "file": ANONYMOUS,
        "sdk": ANONYMOUS,
        "other": ANONYMOUS,
        "named": prefix,
        "by-name": f"{prefix}-registered",
    }
    for word in found:
        assert yard.wait(f"{prefix}-{word}")["status"] == "Failed"
        assert "registry.invalid/team/base" in str(yard.job(f"{prefix}-{word}")["error"])


def _dockerfile(yard: Yard, job: str) -> tuple[str, str]:
    """The snapshot of a job's build context, and the Dockerfile in it."""
    reference = _environment(yard, job)
    build = yard.post("environments/definition", {"environment": reference})["definition"]["build"]
    return build["path"].removeprefix("snapshot:"), build.get("dockerfile_path", "Dockerfile")


def _environment(yard: Yard, job: str) -> str:
    reference: str = yard.get(f"jobs/{job}/document")["environment"]
    return reference
