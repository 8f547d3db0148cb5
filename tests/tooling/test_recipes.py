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
    "spindle/__init__.py": "",
    "spindle/settings.py": """
from torchyard.base.documents.checks import Whole
from torchyard.base.documents.models import declared
from torchyard.executors.cluster_settings import NodeSettings, Setting


class SpindleSettings(NodeSettings):
    cluster_keys = ("frame",)
    server_files = {"pattern": "the spindle's pattern"}

    threads: int = declared(4, "how many threads it weaves", Whole(1, 100))
    frame: str = declared("", "where it stands", Setting("shed-1"))
    pattern: str = declared("", "the file with its pattern", Setting("/etc/pattern"))


SETTINGS = SpindleSettings
""",
    "spindle/engine.py": """
from torchyard.executors.executor import EngineUnreachable
from torchyard.executors.fake import FakeEngine


class SpindleEngine(FakeEngine):
    def release(self, handle):
        self.released.append(handle.body["frame"])
        if handle.body["frame"] == "burnt":
            raise EngineUnreachable("the spindle has burnt", "build it again")


def open_engine(home, environ, launches, server, runner=None):
    return SpindleEngine("spindle")
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
engines.ENGINES += ("spindle",)
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
from contextlib import suppress
from itertools import count

from fastapi.testclient import TestClient

from torchyard import server
from torchyard.app import application
from torchyard.base.errors import Forbidden
from torchyard.base.settings import Settings
from torchyard.compute import actions, documents
from torchyard.executors.executor import EngineUnreachable, Handle
from torchyard.executors.fake import FakeExecutor

home = made_up / "home"
parts = application.build(home, "http://127.0.0.1:1", os.environ, executor=FakeExecutor())
server.ensure_token(parts, Settings(home).token_file)
headers = {"Authorization": f"Bearer {Settings(home).token_file.read_text().strip()}"}
path = "/v1/workspaces/default/computes/weaver"
with TestClient(application.create_app(parts), headers=headers) as client:

    def put(client=client, **settings):
        return client.put(path, json={"torchyard": {"engine": "spindle", **settings}}).json()

    assert put(threads=9)["torchyard"] == {"engine": "spindle", "threads": 9}
    assert put(threads=0)["error"]["at"] == ["torchyard", "threads"]
    assert client.get(f"{path}/engine").json()["engine"] == "spindle"
    secret = {"name": "weaver", "torchyard": {"engine": "spindle", "pattern": "/etc/shadow"}}
    db, clock = parts.services.db, parts.services.clock
    try:
        actions.create(db, clock, "default", secret, engines=parts.services.engines.names)
    except Forbidden as error:
        assert "with the spindle's pattern" in error.hint
    else:
        raise AssertionError

# Of two clusters, the one that takes long and does not answer is left alone for a while.
openers = engines.openers(home, os.environ, parts.services.launches, parts.services.for_nodes)
spindle = openers["spindle"]()
every = engines.Engines(None, {"spindle": lambda: spindle}, now=count().__next__)
for frame in ("burnt", "whole", "burnt"):
    with suppress(EngineUnreachable):
        every.release(Handle("spindle", {"frame": frame}))
assert spindle.released == ["burnt", "whole"]

described = documents.ComputeFile.as_json_schema()["properties"]
assert described["torchyard"]["properties"]["threads"]["maximum"] == 100
assert "`spindle`" in described["engine"]["description"]
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
