"""CONTRIBUTING's recipes, followed: a made-up feature and a made-up executor appear everywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torchyard

# The folder of a package with a type of job, and that of an engine; each file by its path.
FEATURE = {
    "poems/__init__.py": "",
    "poems/feature.py": """
from torchyard.base.feature import Feature

FEATURE = Feature(
    nouns={"poem": ("poems.command", "Write poems.")},
    routes={("poems",): ["poems.routes"]},
    job_types={"poem": "poems.jobs:POEMS"},
    job_pages={"poem": "poems.command:below"},
    azure_jobs={"poem": "poems.azure:POEMS"},
    keepers=["poems.keeper:keeping"],
    tables=["poems.store"],
)
""",
    "poems/command.py": """
from torchyard.cli.parsing.group import noun

group = noun("poem")


@group.command("write")
def write():
    \"\"\"Write a poem.\"\"\"
    print("roses are red")


def below(client, job, plotted):
    return "roses are red"
""",
    "poems/routes.py": """
from fastapi import APIRouter

from torchyard.workspaces.guarded_routes import GuardedRoute, needs
from torchyard.workspaces.permissions import Permission

router = APIRouter(
    prefix="/v1/workspaces/{workspace}/poems", tags=["poems"], route_class=GuardedRoute
)


@router.get("")
@needs(Permission.READ)
def list_poems(workspace: str) -> dict[str, list[str]]:
    return {"value": ["roses"]}
""",
    "poems/jobs.py": """
class PoemJobs:
    def check(self, services, workspace, document, uploaded):
        return ("it rhymes",)


POEMS = PoemJobs()
""",
    "poems/azure.py": """
from torchyard.azureml.arm.job_kinds import JobKind

POEMS = JobKind(
    lambda reader, name, properties: {"type": "poem", "name": name},
    lambda call, job, environment_hash: {"jobType": "Poem"},
    lambda services, job, document: None,
)
""",
    "poems/keeper.py": """
from contextlib import asynccontextmanager


@asynccontextmanager
async def keeping(services, state):
    state.poems = "kept"
    yield
    state.poems = "left"
""",
    "poems/store.py": """
from sqlalchemy import Column, Integer, Table

from torchyard.base.db import metadata

poems = Table("poems", metadata, Column("number", Integer, primary_key=True))
""",
}
EXECUTOR = {
    "loom/__init__.py": "",
    "loom/settings.py": """
from torchyard.base.documents.checks import Whole
from torchyard.base.documents.models import declared
from torchyard.executors.cluster_settings import NodeSettings


class LoomSettings(NodeSettings):
    threads: int = declared(4, "how many threads it weaves", Whole(1, 100))


SETTINGS = LoomSettings
""",
    "loom/engine.py": """
from torchyard.executors.fake import FakeEngine


def open_engine(home, environ, launches, server, runner=None):
    return FakeEngine("loom")
""",
}
START = """
import os, sys
from pathlib import Path

made_up = Path(sys.argv[1])
"""
# What the recipes have elsewhere: a line in features.py and one in jobs/spec/job_spec.py.
LINES_OF_A_FEATURE = """
import torchyard
from torchyard import features
from torchyard.base.documents.checks import Key
from torchyard.jobs.spec import job_spec

torchyard.__path__.append(str(made_up))
features.PACKAGES += ("poems",)
job_spec.TYPE.values["poem"] = Key("lines that rhyme")
"""
# A line in executors/engines.py.
LINES_OF_AN_EXECUTOR = """
import torchyard.executors
from torchyard.executors import engines

torchyard.executors.__path__.append(str(made_up))
engines.ENGINES += ("loom",)
"""
ASKED_OF_A_FEATURE = """
from click.testing import CliRunner
from fastapi.testclient import TestClient

from torchyard import server
from torchyard.app import application
from torchyard.azureml.arm.job_views import KINDS
from torchyard.backups import actions as backups
from torchyard.base.settings import Settings
from torchyard.cli.help_page import help_page
from torchyard.cli.jobs.commands import _further_pages
from torchyard.cli.parsing.group import yard
from torchyard.executors.fake import FakeExecutor

home = made_up / "home"
parts = application.build(home, "http://127.0.0.1:1", os.environ, executor=FakeExecutor())
server.ensure_token(parts, Settings(home).token_file)
headers = {"Authorization": f"Bearer {Settings(home).token_file.read_text().strip()}"}
app = application.create_app(parts)
here = "/v1/workspaces/default"
with TestClient(app, headers=headers) as client:
    assert app.state.poems == "kept"
    assert client.get(f"{here}/poems").json() == {"value": ["roses"]}
    assert f"{here.replace('default', '{workspace}')}/poems" in app.openapi()["paths"]
    checked = client.post(f"{here}/jobs/validate", json={"type": "poem"})
    assert checked.json() == {"notices": ["it rhymes"]}, checked.text
    assert client.get(f"{here}/jobs?type=poem").json()["value"] == []
    with parts.services.db.write() as connection:
        connection.exec_driver_sql("INSERT INTO poems VALUES (7)")
    backups.backup(home, "", made_up / "backup.tar")
assert app.state.poems == "left"
backups.restore(made_up / "restored", "", made_up / "backup.tar")
restored = application.build(made_up / "restored", "http://127.0.0.1:1", os.environ)
with restored.services.db.read() as connection:
    assert connection.exec_driver_sql("SELECT number FROM poems").scalar() == 7
restored.services.db.close()
assert KINDS["poem"].properties(None, None, "") == {"jobType": "Poem"}
assert "poem" in _further_pages() and "  poem              Write poems." in help_page()
assert CliRunner().invoke(yard, ["poem", "write"]).output == "roses are red\\n"
"""
ASKED_OF_AN_EXECUTOR = """
from datetime import datetime, timezone

from torchyard.base.errors import InvalidSpec
from torchyard.compute import documents, sizes
from torchyard.executors.launch_files import LaunchFiles
from torchyard.executors.server_for_nodes import NodeAddresses, ServerForNodes

every = engines.openers(
    made_up, os.environ, LaunchFiles(made_up), ServerForNodes("id", NodeAddresses)
)
assert every["loom"]().engine == "loom"


def read(**settings):
    document = {"name": "weaver", "torchyard": {"engine": "loom", **settings}}
    now = datetime.now(timezone.utc)
    return documents.read(document, "default", now, sizes.all_sizes(), ("local", *every))


cluster = read(threads=9)
assert (cluster.engine, cluster.settings["threads"]) == ("loom", 9)
try:
    read(threads=0)
except InvalidSpec as error:
    assert error.at == ("torchyard", "threads")
else:
    raise AssertionError
mapping = documents.ComputeFile.as_json_schema()["properties"]["torchyard"]
assert mapping["properties"]["threads"]["maximum"] == 100
"""


def follow(folder: Path, files: dict[str, str], program: str) -> None:
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    ran = subprocess.run(
        [sys.executable, "-c", START + program, str(folder)],
        env={"PYTHONPATH": str(Path(torchyard.__file__).parents[1]), "HOME": str(folder)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr


def test_a_feature_is_its_folder_and_a_line(tmp_path: Path) -> None:
    follow(tmp_path, FEATURE, LINES_OF_A_FEATURE + ASKED_OF_A_FEATURE)


def test_an_executor_is_its_folder_and_a_line(tmp_path: Path) -> None:
    follow(tmp_path, EXECUTOR, LINES_OF_AN_EXECUTOR + ASKED_OF_AN_EXECUTOR)
