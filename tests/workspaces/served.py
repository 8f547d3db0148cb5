"""A server without a scheduler, and people of every role who ask it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from anyio.from_thread import start_blocking_portal
from fastapi.testclient import TestClient

from torchyard import server
from torchyard.app import application
from torchyard.base.clock import Clock
from torchyard.base.settings import Settings
from torchyard.executors.fake import FakeExecutor
from torchyard.workspaces import actions, people
from torchyard.workspaces.types import Identity, Role, TokenKind, role_named

PEOPLE = {"rita": "reader", "dan": "data-scientist", "carl": "contributor", "olga": "owner"}
HERE = "/v1/workspaces/default"
MLFLOW = "/mlflow/default/api/2.0/mlflow"
JOB = {"command": "true", "environment": "python"}


def http_scope(method: str, path: str, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    """What an ASGI server tells an application of a request for JSON."""
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [(b"host", b"testserver"), (b"content-type", b"application/json"), *headers],
        "client": ("192.0.2.1", 1),
        "server": ("testserver", 80),
    }


@dataclass
class Served:
    """`tokens` by person; `home` is who owns the home folder."""

    parts: application.Parts
    client: TestClient
    tokens: dict[str, str]

    def ask(
        self, who: str, method: str, path: str, json: Any = None, **more: Any
    ) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.tokens[who]}"}
        answer: Any = self.client.request(method, path, json=json, headers=headers, **more)
        return answer  # type: ignore[no-any-return]

    def ok(self, who: str, method: str, path: str, json: Any = None, **more: Any) -> Any:
        answer = self.ask(who, method, path, json, **more)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    def refused(self, who: str, method: str, path: str, json: Any = None, **more: Any) -> Any:
        answer = self.ask(who, method, path, json, **more)
        assert answer.status_code == 403, answer.text
        body = answer.json()
        return body.get("error", body)

    def add(self, name: str, role: str | None, workspace: str = "default") -> str:
        person = {"name": name, "role": role, "workspace": workspace}
        self.ok("home", "POST", "/v1/users", person)
        made = self.ok("home", "POST", f"/v1/users/{name}/tokens", {"name": "first"})
        self.tokens[name] = made["token"]
        return str(made["token"])

    def job_token(self, job: str, owner: str) -> str:
        """What a running job of that owner has."""
        token = actions.new_token(TokenKind.RUN)
        services = self.parts.services
        with services.db.write() as connection:
            identity = Identity(owner, TokenKind.RUN, "default", f"default/{job}")
            actions.keep_token(connection, token, identity, services.clock.now())
        self.tokens[f"job of {owner}"] = token
        return token

    def rows(self) -> dict[str, list[Any]]:
        """Every row of every table, but when a token was used."""
        rows = {}
        with self.parts.services.db.read() as connection:
            from torchyard.base.db import metadata

            for table in metadata.sorted_tables:
                columns = [column for column in table.columns if column.name != "last_used_at"]
                query = table.select().with_only_columns(*columns)
                rows[table.name] = sorted(map(repr, connection.execute(query)))
        return rows


@contextmanager
def served(home: Path, database_url: str, clock: Clock | None = None) -> Iterator[Served]:
    parts = application.build(
        home,
        "http://127.0.0.1:1",
        os.environ,
        clock=clock,
        executor=FakeExecutor(),
        database=database_url,
    )
    token_file = Settings(home).token_file
    server.ensure_token(parts, token_file)
    # Without `with`: no scheduler runs, and what is made stays as it is.
    client = TestClient(application.create_app(parts), raise_server_exceptions=False)
    made = Served(parts, client, {"home": token_file.read_text().strip()})
    # One event loop for all requests, where the client would start one for each.
    with start_blocking_portal() as client.portal:
        for name, role in PEOPLE.items():
            _add_person(made, name, role_named(role))
        yield made
    client.close()
    parts.services.db.close()


def _add_person(served: Served, name: str, role: Role) -> None:
    """As `Served.add`, without the two requests, which take longer than many a test."""
    services = served.parts.services
    people.create(services.db, services.clock, name, role, "default", "home")
    token = people.new_token(services.db, services.clock, name, "first", None)
    served.tokens[name] = token
