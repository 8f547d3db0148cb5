"""What people with a role, jobs and nodes try through clusters, machines and attempts' tokens."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from torchyard.base import lazy_routes
from torchyard.cli.compute.nodes import _COLUMNS
from torchyard.cli.terminal import tables
from torchyard.executors import server_for_nodes
from torchyard.executors.ray.head_nodes import RayHead
from torchyard.executors.server_for_nodes import NodeAddresses, ServerForNodes
from torchyard.executors.slurm import batch_script
from torchyard.executors.slurm.commands import Slurm
from torchyard.executors.slurm.settings import SlurmSettings
from torchyard.shared.node_start import NodeStart
from torchyard.workspaces import actions
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Identity, TokenKind
from workspaces.served import HERE, Served, served

ONE_DATABASE = True
ARM = (
    "/subscriptions/local/resourceGroups/torchyard/providers/Microsoft.MachineLearningServices/"
    "workspaces/default/computes/mine?api-version=2023-10-01"
)
# Nothing listens there: the engine is asked, and does not answer.
ADDRESS = "127.0.0.1:9"
SHELL = "x; touch HACKED $(touch HACKED) `touch HACKED` | touch HACKED & ' \" \\ ${IFS} >HACKED"
NAMES = (
    "",
    "..",
    "../../x",
    "a/b",
    "A",
    "-n",
    "--name",
    "a\nb",
    "a\x1b[2J",
    "a" * 64,
    "a,b)",
    "!in(a)",
    "ä",
    "a b",
    "$(id)",
    "a;b",
    "%00",
)


class Heads:
    """In place of Ray's: a head that runs."""

    def __init__(self, folder: Path) -> None:
        self._token = folder / "token-of-ray"
        self._token.write_text("the-token-of-ray")
        self.addresses: list[str] = []

    def ensure(self, key: str, address: str = "") -> RayHead:
        self.addresses.append(address)
        return RayHead(ADDRESS, "2.60.0", "3.11.7", self._token)


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Served]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    with served(home, database_url) as made:
        app: Any = made.client.app
        app.state.ray_heads = Heads(tmp_path)
        yield made


@pytest.fixture
def listening(site: Served) -> Served:
    """Its server is one that other machines reach."""
    app: Any = site.client.app
    urls = ("https://192.0.2.1:8766",)
    app.state.for_nodes = ServerForNodes("server", lambda: NodeAddresses(urls))
    return site


def ray_cluster(**settings: Any) -> dict[str, Any]:
    return {
        "name": "mine",
        "type": "amlcompute",
        "torchyard": {"engine": "ray", "address": ADDRESS, **settings},
    }


def slurm_cluster(**settings: Any) -> dict[str, Any]:
    return {"name": "mine", "type": "amlcompute", "torchyard": {"engine": "slurm", **settings}}


@pytest.mark.parametrize(
    "document",
    [
        ray_cluster(token_file="/etc/shadow"),
        slurm_cluster(config="/tmp/mine/slurm.conf"),
        {**ray_cluster(), "tags": {"torchyard.token_file": "/etc/shadow"}},
    ],
    ids=["token_file", "config", "tag"],
)
def test_only_who_administers_the_server_names_its_files(
    site: Served, document: Mapping[str, Any]
) -> None:
    site.job_token("running", "olga")
    for who in ("carl", "olga", "job of olga"):  # olga owns the workspace, not the server
        error = site.refused(who, "PUT", f"{HERE}/computes/mine", document)
        assert "names a file of the server's machine" in error["message"]
        assert "ask who administers the server" in error["hint"]
    assert "mine" not in str(site.ok("home", "GET", f"{HERE}/computes"))
    properties = {
        "computeType": "AmlCompute",
        "properties": {"scaleSettings": {"maxNodeCount": 2}},
    }
    settings = {f"torchyard.{key}": text for key, text in document["torchyard"].items()}
    tags = {**settings, **document.get("tags", {})}
    answer = site.ask(
        "carl", "PUT", ARM, {"location": "local", "tags": tags, "properties": properties}
    )
    assert answer.status_code == 403, answer.text


def test_what_the_administrator_chose_stays_when_others_change_the_rest(site: Served) -> None:
    document = ray_cluster(token_file=str(site.parts.services.home / "lab-token"))
    site.ok("home", "PUT", f"{HERE}/computes/mine", document)
    changed = site.ok("carl", "PUT", f"{HERE}/computes/mine", {**document, "max_instances": 7})
    assert changed["max_instances"] == 7
    # The token would be sent to another machine.
    document["torchyard"]["address"] = "192.0.2.1:6379"
    site.refused("carl", "PUT", f"{HERE}/computes/mine", document)
    compute = site.ok("home", "GET", f"{HERE}/computes/mine")
    assert compute["torchyard"]["address"] == ADDRESS


def test_with_a_runner_only_who_administers_the_server_attaches_a_cluster(site: Served) -> None:
    site.job_token("running", "olga")
    app: Any = site.client.app
    app.state.jobs_as_server_user = False
    tagged = {"name": "mine", "tags": {"torchyard.engine": "ray", "torchyard.address": ADDRESS}}
    for document in (ray_cluster(), {**tagged, "type": "amlcompute"}):
        for who in ("carl", "olga", "job of olga"):
            error = site.refused(who, "PUT", f"{HERE}/computes/mine", document)
            assert "`address`" in error["message"]
    assert "mine" not in str(site.ok("home", "GET", f"{HERE}/computes"))
    site.ok("home", "PUT", f"{HERE}/computes/mine", ray_cluster())
    changed = {**ray_cluster(), "max_instances": 7}
    assert site.ok("carl", "PUT", f"{HERE}/computes/mine", changed)["max_instances"] == 7
    changed["torchyard"]["address"] = "192.0.2.1:6379"
    site.refused("carl", "PUT", f"{HERE}/computes/mine", changed)


def test_with_a_runner_the_token_of_ray_is_for_who_administers_the_server(site: Served) -> None:
    path, body = f"{HERE}/machines/machines/lab-3", {"address": "192.0.2.7", "facts": {}}
    app: Any = site.client.app
    app.state.jobs_as_server_user = False
    for who in ("carl", "olga"):
        for method, below in (("PUT", ""), ("POST", "/report")):
            answer = site.ask(who, method, path + below, body)
            assert answer.status_code == 403 and "the-token-of-ray" not in answer.text
    assert site.ok("home", "PUT", path, body)["ray"]["token"] == "the-token-of-ray"
    app.state.jobs_as_server_user = True
    others = f"{HERE}/machines/machines/lab-4"
    assert site.ok("carl", "PUT", others, body)["ray"]["token"] == "the-token-of-ray"
    assert site.ask("dan", "PUT", others, body).status_code == 403


def test_what_a_machine_may_take_is_said_when_its_token_is_made(site: Served) -> None:
    """Its agent can't raise it later, though an administrator made its token."""
    path = f"{HERE}/machines/machines/lab-3"
    alone = {"address": "192.0.2.7", "facts": {"runner": False}}
    everybody = {"address": "192.0.2.7", "facts": {"runner": True}}

    def ask(token: str, method: str, below: str, body: Any) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return int(
            site.client.request(method, path + below, json=body, headers=headers).status_code
        )

    token = site.ok("home", "POST", f"{path}/token")["token"]
    assert ask(token, "PUT", "", alone) == 200
    for method, below in (("PUT", ""), ("POST", "/report")):
        assert ask(token, method, below, everybody) == 403
    [machine] = site.ok("home", "GET", f"{HERE}/machines")["value"]
    assert machine["facts"]["runner"] is False
    for who in ("carl", "olga"):
        site.refused(who, "POST", f"{path}/token?everybody=true")
    token = site.ok("home", "POST", f"{path}/token?everybody=true")["token"]
    assert ask(token, "PUT", "", everybody) == ask(token, "POST", "/report", everybody) == 200


def test_a_token_of_a_machine_joins_it_and_does_nothing_else(site: Served) -> None:
    path, body = f"{HERE}/machines/machines/lab-3", {"address": "192.0.2.7", "facts": {}}
    site.refused("dan", "POST", f"{path}/token")
    made = site.ok("carl", "POST", f"{path}/token")
    assert made["token"].startswith("yard_m_") and set(made) == {
        "token",
        "server_urls",
        "certificate",
        "ray",
    }

    def ask(method: str, path: str, body: Any = None) -> int:
        headers = {"Authorization": f"Bearer {made['token']}"}
        return int(site.client.request(method, path, json=body, headers=headers).status_code)

    assert ask("PUT", path, body) == ask("POST", f"{path}/report", body) == 200
    others: list[tuple[str, str]] = [
        ("PUT", f"{HERE}/machines/machines/lab-4"),
        ("POST", f"{HERE}/machines/machines/lab-4/report"),
        ("PUT", f"{HERE}/machines/other/lab-3"),
        ("PUT", path.replace("/default/", "/vision/")),
        ("POST", f"{path}/token"),
        ("POST", f"{path}/drain"),
        ("DELETE", path),
        ("GET", f"{HERE}/machines"),
        ("GET", f"{HERE}/jobs"),
        ("POST", f"{HERE}/jobs"),
        ("GET", "/v1/whoami"),
        ("POST", "/v1/users/carl/tokens"),
    ]
    for method, other in others:
        assert ask(method, other, body if method != "GET" else None) == 403, (method, other)
    # It counts for no more than who made it, and goes with them.
    site.ok("home", "PUT", f"{HERE}/people/carl", {"role": "reader"})
    assert ask("POST", f"{path}/report", body) == 403
    site.ok("home", "PUT", f"{HERE}/people/carl", {"role": "contributor"})
    app: Any = site.client.app
    app.state.jobs_as_server_user = False
    assert ask("POST", f"{path}/report", body) == 403
    app.state.jobs_as_server_user = True
    assert ask("POST", f"{path}/report", body) == 200
    site.ok("home", "DELETE", "/v1/users/carl")
    assert ask("POST", f"{path}/report", body) == 401


def test_an_invitation_gives_one_token_and_does_nothing_else(listening: Served) -> None:
    site, path = listening, f"{HERE}/machines/machines"
    site.refused("dan", "POST", f"{path}/invitations", {})
    invited = site.ok("carl", "POST", f"{path}/invitations", {"machine": "lab-3"})
    assert invited["token"].startswith("yard_i_")
    assert invited["token"] not in str(site.rows()), "only its hash is stored"
    for who in ("carl", "home"):
        site.refused(who, "POST", "/v1/invitations/accept", {"host": "lab-3"})

    def ask(token: str, method: str, path: str, body: Any = None) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {token}"}
        answer: Any = site.client.request(method, path, json=body, headers=headers)
        return answer  # type: ignore[no-any-return]

    machine = {"address": "192.0.2.7", "facts": {}}
    others: list[tuple[str, str]] = [
        ("PUT", f"{path}/lab-3"),
        ("POST", f"{path}/lab-3/report"),
        ("POST", f"{path}/lab-3/token"),
        ("POST", f"{path}/invitations"),
        ("DELETE", f"{path}/lab-3"),
        ("GET", f"{HERE}/machines"),
        ("POST", f"{HERE}/jobs"),
        ("GET", "/v1/whoami"),
        ("POST", "/v1/sign-in/links"),
        ("POST", "/v1/users/carl/tokens"),
    ]
    for method, other in others:
        answer = ask(invited["token"], method, other, machine if method != "GET" else None)
        assert answer.status_code == 403, (method, other)
    accepted = ask(invited["token"], "POST", "/v1/invitations/accept", {"host": "other"})
    assert accepted.status_code == 200, accepted.text
    token = accepted.json()["token"]
    assert "the-token-of-ray" not in accepted.text
    assert ask(token, "PUT", f"{path}/lab-3", machine).status_code == 200
    assert ask(token, "PUT", f"{path}/other", machine).status_code == 403
    again = ask(invited["token"], "POST", "/v1/invitations/accept", {})
    assert again.status_code == 401


def test_an_invitation_counts_for_no_more_than_who_made_it(listening: Served) -> None:
    site, path = listening, f"{HERE}/machines/machines"
    for who in ("carl", "olga"):
        site.refused(who, "POST", f"{path}/invitations", {"everybody": True})
    app: Any = site.client.app
    invited = site.ok("carl", "POST", f"{path}/invitations", {})

    def accept() -> int:
        headers = {"Authorization": f"Bearer {invited['token']}"}
        answer = site.client.post("/v1/invitations/accept", json={"host": "a"}, headers=headers)
        return int(answer.status_code)

    app.state.jobs_as_server_user = False
    assert accept() == 403
    site.refused("olga", "POST", f"{path}/invitations", {})
    app.state.jobs_as_server_user = True
    site.ok("home", "DELETE", "/v1/users/carl")
    assert accept() == 401


def test_the_head_is_where_the_first_machine_reaches_the_server_and_stays_there(
    site: Served,
) -> None:
    app: Any = site.client.app
    own = server_for_nodes.own_addresses()[0]
    urls = (f"https://{own}:8766", "https://192.0.2.1:8766", "https://box.lab:8766")
    app.state.for_nodes = ServerForNodes("server", lambda: NodeAddresses(urls))
    path, heads = f"{HERE}/machines/machines", app.state.ray_heads
    # Only an address of this machine.
    for address in (own, "192.0.2.1", "box.lab", ""):
        site.ok("carl", "POST", f"{path}/invitations", {"address": address})
    assert heads.addresses == [own, "", "", ""]
    site.ok("carl", "PUT", f"{path}/lab-3", {"address": "192.0.2.7", "facts": {}})
    heads.addresses.clear()
    site.ok("carl", "POST", f"{path}/invitations", {"address": own})
    assert heads.addresses == [""], "a machine has joined it where it is"


def test_who_only_reaches_its_own_machine_invites_nobody(site: Served) -> None:
    answer = site.ask("home", "POST", f"{HERE}/machines/machines/invitations", {})
    assert answer.json()["error"]["code"] == "not_listening"
    assert "`yard server start --listen`" in answer.json()["error"]["hint"]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_machine_of_a_hostile_name_is_refused(site: Served, name: str) -> None:
    body = {"address": "192.0.2.7", "facts": {}}
    path = f"{HERE}/machines/machines/{quote(name, safe='')}"
    answer = site.ask("carl", "PUT", path, body)
    assert 400 <= answer.status_code < 500, answer.text
    assert site.ok("carl", "GET", f"{HERE}/machines")["value"] == []


def test_what_a_machine_says_of_itself_is_cut_and_printed_without_control_characters(
    site: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J\r\n\u202eGPU" + "x" * 100_000
    facts = {
        **dict.fromkeys(("hostname", "gpu_kind", "system", "version"), hostile),
        "gpus": 4,
        "extra": hostile,
    }
    path = f"{HERE}/machines/machines/lab-3"
    site.ok("carl", "PUT", path, {"address": "192.0.2.7", "facts": facts})
    listed = site.ok("rita", "GET", f"{HERE}/machines")["value"]
    assert len(json.dumps(listed)) < 10_000 and "extra" not in listed[0]["facts"]
    for output in ("table", "tsv"):
        tables.rows(tables.Form(output), listed, _COLUMNS)
        printed = capsys.readouterr().out
        assert "lab-3" in printed
        assert not any(character in printed for character in "\x1b\x07\r\u202e")
    wrong_facts: tuple[Any, ...] = (
        {"cpus": -1},
        {"cpus": 1 << 80},
        {"gpus": True},
        {"memory_bytes": "9"},
        {"cpus": 1e400},
        [7],
        "x",
    )
    for wrong in wrong_facts:
        answer = site.client.put(
            path,
            content=json.dumps({"address": "192.0.2.7", "facts": wrong}),
            headers={
                "Authorization": f"Bearer {site.tokens['carl']}",
                "Content-Type": "application/json",
            },
        )
        assert answer.status_code in (400, 422), (wrong, answer.text)
    for address in ("", "a.b", "192.0.2.7\n", "::1]:6379 --head", "x" * 1000, None, 7, ["::1"]):
        answer = site.ask("carl", "PUT", path, {"address": address, "facts": {}})
        assert answer.status_code == 400, (address, answer.text)


def test_a_token_of_one_attempt_opens_nothing_of_another(site: Served) -> None:
    services = site.parts.services
    token = actions.new_token(TokenKind.ATTEMPT)
    with services.db.write() as connection:
        identity = Identity("dan", TokenKind.ATTEMPT, "default", "attempt-a")
        actions.keep_token(connection, token, identity, services.clock.now())
    site.tokens["attempt-a"] = token
    app: Any = site.client.app
    worker_requests = 0
    for path, route in lazy_routes.every_route(app.routes):
        declared = getattr(route, "needs", None)
        if declared is None or declared.permission is Permission.OPEN:
            continue
        is_for_workers = declared.permission is Permission.WORKER
        filled = path.replace("{attempt_id}", "attempt-b")
        filled = filled.replace("{workspace}", "default").replace("{path:path}", "a")
        for method in getattr(route, "methods", None) or ():
            answer = site.ask("attempt-a", method, filled.replace("{", "").replace("}", ""), {})
            assert answer.status_code in (401, 403, 404, 405), (method, path, answer.text)
            assert not is_for_workers or answer.status_code in (401, 405), (method, path)
            worker_requests += is_for_workers
    assert worker_requests > 10


def test_no_setting_of_slurm_is_read_by_a_shell(tmp_path: Path) -> None:
    """Every setting that takes any text, through the programs and the script, with a real shell."""
    programs, here = tmp_path / "bin", tmp_path / "here"
    programs.mkdir()
    here.mkdir()
    for name, text in {
        "sbatch": f'#!/bin/sh\nprintf "%s\\0" "$@" >{tmp_path}/sbatch\n'
        f"cat >{tmp_path}/script; echo 7\n",
        "srun": f'#!/bin/sh\nprintf "%s\\0" "$@" >{tmp_path}/srun; cat >{tmp_path}/start; exit 3\n',
        "scontrol": f'#!/bin/sh\nprintf "%s\\0" "$@" >{tmp_path}/scontrol\n',
    }.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    texts = ("partition", "account", "qos", "constraint", "time_limit", "gres", "reservation")
    # Whatever a check of theirs says.
    written: Any = {**dict.fromkeys(texts, SHELL), "python": SHELL, "node_folder": SHELL}
    settings = SlurmSettings.model_construct(**written)
    start = NodeStart("attempt", ["http://127.0.0.1:9"], SHELL, "0" * 64, SHELL, SHELL, SHELL)
    script = batch_script.text(start, settings.python, f"torchyard {SHELL}")
    slurm = Slurm({"PATH": f"{programs}:/usr/bin:/bin"})
    assert slurm.submit(settings.words, script) == 7
    words = (tmp_path / "sbatch").read_text().split("\0")[:-1]
    assert [word for word in words if word.endswith(SHELL)] == words[1:] and len(words) == 8
    subprocess.run(
        ["sh", str(tmp_path / "script")],
        cwd=here,
        env={
            "PATH": f"{programs}:{os.environ['PATH']}",
            "SLURM_JOB_NUM_NODES": "2",
            "SLURM_JOB_ID": "7",
        },
        timeout=60,
        check=False,
    )
    assert SHELL in (tmp_path / "srun").read_text().split("\0")
    assert (tmp_path / "start").read_text() == start.to_json() + "\n"
    assert (tmp_path / "scontrol").read_text().count(SHELL) == 1
    assert not list(here.iterdir()) and not list(tmp_path.glob("**/HACKED*"))
