"""A secret planted through every door is nowhere in clear: database, backup, audit, logs."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from torchyard.backups import actions as backups
from torchyard.base.db import Database, metadata
from torchyard.base.home.secrets_keys import KeyRing
from torchyard.workspaces import sessions
from workspaces.served import HERE, Served, served

PLANTED = "pLanted-{}-9f27c4d1"
CODE = "def init(): pass\ndef run(data): return data\n"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Everything that the server logs."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger().addHandler(handler)
    yield stream
    logging.getLogger().removeHandler(handler)


@pytest.fixture
def site(tmp_path: Path, database_url: str, log: io.StringIO) -> Iterator[Served]:
    with served(tmp_path / "home", database_url) as made:
        yield made


def _variables(secret: str) -> dict[str, Any]:
    """Of a job: secret by its name, and secret because it is marked; both once more in a text."""
    return {
        "environment_variables": {"HF_TOKEN": secret, "PHRASE": f"{secret}-marked", "A": "plain"},
        "properties": {"torchyard.secrets": "PHRASE"},
        "description": f"trains with {secret}",
    }


def _job(site: Served, secret: str) -> None:
    job = {"name": "planted", "command": f"echo {secret}", "environment": "python"}
    site.ok("dan", "POST", f"{HERE}/jobs", {**job, **_variables(secret)})


def _sweep(site: Served, secret: str) -> None:
    sweep = {
        "type": "sweep",
        "name": "planted-sweep",
        "trial": {
            "command": "python -c 1 --a ${{search_space.a}}",
            "environment": "python",
            "environment_variables": {"HF_TOKEN": secret},
        },
        "search_space": {"a": {"type": "choice", "values": [1, 2]}},
        "sampling_algorithm": "grid",
        "objective": {"goal": "minimize", "primary_metric": "loss"},
        "limits": {"max_total_trials": 1},
    }
    site.ok("dan", "POST", f"{HERE}/jobs", sweep)


def _component(site: Served, secret: str) -> None:
    component = {"name": "step", "command": "true", "environment": "python", "type": "command"}
    variables = {"environment_variables": {"HF_TOKEN": secret}}
    site.ok("dan", "POST", f"{HERE}/components", {**component, **variables})


def _datastore(site: Served, secret: str) -> None:
    credentials = {"access_key_id": "me", "secret_access_key": secret}
    body = {"type": "s3", "bucket": "b", "credentials": credentials}
    site.ok("carl", "PUT", f"{HERE}/datastores/far", body)


def _connection(site: Served, secret: str) -> None:
    from torchyard.connections import actions

    document = {
        "category": "Git",
        "target": "https://git.example.org",
        "authType": "PAT",
        "credentials": {"pat": secret},
    }
    services = site.parts.services
    actions.put(services.db, services.clock, "default", "git", "carl", document)


def _webhook(site: Served, secret: str) -> None:
    recipients = {
        "notify": [{"url_env": "CHAT_URL"}],
        "notify_secrets": {"CHAT_URL": f"https://hooks.example.org/{secret}"},
    }
    site.ok("carl", "PATCH", HERE, recipients)


def _endpoint_key(site: Served, secret: str) -> None:
    site.ok("carl", "PUT", f"{HERE}/online-endpoints/digits", {})
    body = {"key_type": "primary", "key_value": secret.ljust(32, "x")}
    site.ok("carl", "POST", f"{HERE}/online-endpoints/digits/keys/regenerate", body)


def _deployment(kind: str) -> Callable[[Served, str], None]:
    def plant(site: Served, secret: str) -> None:
        blob = site.parts.services.blobs.of("default").put_bytes
        files = {"score.py": CODE, "model.pkl": "weights"}
        rows: list[dict[str, Any]] = [
            {"path": path, "sha256": blob(text.encode()), "size": len(text)}
            for path, text in files.items()
        ]
        snapshot = f"snapshot:{site.ok('carl', 'PUT', f'{HERE}/snapshots', {'files': rows})['id']}"
        body: dict[str, Any] = {
            "model": {"path": snapshot, "folder": "model"},
            "code_configuration": {"code": snapshot, "scoring_script": "score.py"},
            "environment": "python",
            "environment_variables": {"HF_TOKEN": secret},
        }
        if kind == "online":
            body |= {"instance_type": "Standard_DS3_v2", "instance_count": 1}
        site.ok("carl", "PUT", f"{HERE}/{kind}-endpoints/planted", {})
        site.ok("carl", "PUT", f"{HERE}/{kind}-endpoints/planted/deployments/blue", body)

    return plant


def _refused_document(site: Served, secret: str) -> None:
    job = {"comand": "true", "environment": "python", **_variables(secret)}
    assert site.ask("dan", "POST", f"{HERE}/jobs", job).status_code == 400


def _query(site: Served, secret: str) -> None:
    site.ask("dan", "GET", f"{HERE}/jobs?token=yard_p_{secret}")
    site.client.get("/v1/whoami", headers={"Authorization": f"Bearer yard_p_{secret}"})


DOORS: dict[str, Callable[[Served, str], None]] = {
    "job": _job,
    "sweep": _sweep,
    "component": _component,
    "datastore": _datastore,
    "connection": _connection,
    "webhook": _webhook,
    "endpoint-key": _endpoint_key,
    "online-deployment": _deployment("online"),
    "batch-deployment": _deployment("batch"),
    "refused-document": _refused_document,
    "query": _query,
}


def _tokens(site: Served) -> list[str]:
    """Those that the server made itself: of people, a page's session, endpoints."""
    services = site.parts.services
    texts = [*site.tokens.values()]
    code = site.ok("dan", "POST", "/v1/sign-in/links", {})["code"]
    texts += [code, sessions.redeem(services.db, services.clock, code).text]
    keys = site.ok("carl", "POST", f"{HERE}/online-endpoints/digits/keys", {})
    return [*texts, *(value for name, value in keys.items() if name.endswith("Key"))]


def _rows(database_url: str) -> bytes:
    """Every value of every row as it is stored."""
    with closing(Database(database_url)) as db, db.read() as connection:
        tables = sa.MetaData()
        tables.reflect(connection, only=[table.name for table in metadata.sorted_tables])
        return "".join(
            f"{table.name} {tuple(row)}\n"  # a row itself is cut off when it is shown
            for table in tables.sorted_tables
            for row in connection.execute(
                sa.select(*(sa.cast(column, sa.Text) for column in table.columns))
            )
        ).encode()


def _bytes(folder: Path, *but: str) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in but
    }


@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection of expression-based")
def test_planted_secrets_are_nowhere_in_clear(
    site: Served, database_url: str, tmp_path: Path, log: io.StringIO
) -> None:
    secrets = []
    for name, plant in DOORS.items():
        secrets.append(PLANTED.format(name))
        plant(site, secrets[-1])
    secrets += _tokens(site)
    home = site.parts.services.home
    backups.backup(home, database_url, tmp_path / "backup")
    # The owner's token is in a file for its owner, as documented.
    places = {"rows": _rows(database_url), "log": log.getvalue().encode(), **_bytes(home, "token")}
    places |= {f"backup: {path}": text for path, text in _bytes(tmp_path / "backup").items()}
    if database_url.startswith("sqlite"):
        places |= _bytes(tmp_path, "token")
    found = [
        f"{secret}: {place}"
        for secret in secrets
        for place, content in places.items()
        if secret.encode() in content
    ]
    assert found == []
    # The search would have found them.
    assert len(places) > 10 and b"planted-sweep" in places["rows"]
    assert any(b"planted-sweep" in text for place, text in places.items() if "backup" in place)
    (key,) = KeyRing(home).secrets()
    assert not any(key in text for text in _bytes(home).values())
    assert not any(key in text for place, text in places.items() if "backup" in place)
