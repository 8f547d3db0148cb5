"""A browser's requests to the app: cookies kept, headers that pages can and can't set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx2
from fastapi.testclient import TestClient

from workspaces.served import Served

OWN = {"Origin": "http://testserver", "X-Torchyard-Page": "1", "Sec-Fetch-Site": "same-origin"}
COOKIE = "torchyard_session"


@dataclass
class Page:
    """The page in one browser; `client` keeps its cookies."""

    client: TestClient

    def ask(
        self, method: str, path: str, json: Any = None, headers: dict[str, str] | None = None
    ) -> httpx2.Response:
        """A request as the page's own script sends it, unless other headers are given."""
        sent = OWN if headers is None else headers
        answer: Any = self.client.request(method, path, json=json, headers=sent)
        return answer  # type: ignore[no-any-return]

    @property
    def session(self) -> str:
        """The text of the session's token, as the browser keeps it."""
        return str(self.client.cookies.get(COOKIE) or "")


def browser(site: Served) -> Page:
    """A browser that nobody has signed in with."""
    return Page(TestClient(site.client.app, raise_server_exceptions=False))


def code_of(site: Served, who: str) -> str:
    return str(site.ok(who, "POST", "/v1/sign-in/links", {})["code"])


def signed_in(site: Served, who: str) -> Page:
    page = browser(site)
    answer = page.ask("POST", "/v1/sign-in/session", {"code": code_of(site, who)})
    assert answer.status_code == 201, answer.text
    return page
