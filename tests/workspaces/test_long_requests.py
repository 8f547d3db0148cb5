"""Requests that take long end when their person, token or role does."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from torchyard.base import long_connections
from workspaces.served import HERE, JOB, Served, http_scope, served

ONE_DATABASE = True
_LIMIT_S = 60.0
CHANGES: dict[str, tuple[str, str, Any]] = {
    "role": ("PUT", f"{HERE}/people/dan", {"role": None}),
    "token": ("DELETE", "/v1/users/dan/tokens/first", None),
    "person": ("DELETE", "/v1/users/dan", None),
}


@pytest.fixture
def site(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(long_connections, "CHECK_EVERY_S", 0.02)
    with served(tmp_path, database_url) as made:
        yield made


class Request:
    """One request at the app itself.

    Args:
        body: what it sends, and whether more comes, each when `go_on` is set.
        reads: whether it takes what it is sent.
    """

    def __init__(
        self, site: Served, who: str, method: str, path: str, *, body: bytes = b"",
        more_body: bool = False, reads: bool = True,
    ) -> None:  # fmt: skip
        token = f"Bearer {site.tokens[who]}".encode()
        self._scope = http_scope(method, path, [(b"authorization", token)])
        self._app: Any = site.client.app
        self._body, self._more_body, self._reads = body, more_body, reads
        self.go_on = asyncio.Event()
        self.began = asyncio.Event()
        self.status = 0
        self.content = b""
        self.is_complete = False
        sending = self._app(self._scope, self._receive, self._send)
        self._task: asyncio.Future[None] = asyncio.ensure_future(sending)

    async def _receive(self) -> dict[str, Any]:
        if not self.began.is_set():
            self.began.set()
            return {"type": "http.request", "body": self._body, "more_body": self._more_body}
        await self.go_on.wait()
        return {"type": "http.request", "body": b"late", "more_body": False}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        self.content += message.get("body", b"")
        self.is_complete = not message.get("more_body", False)
        if not self._reads and not self.is_complete:
            await asyncio.Event().wait()

    async def until_it_answers(self) -> None:
        while not self.status:
            assert not self._task.done()
            await asyncio.sleep(0.01)

    async def over(self) -> None:
        await asyncio.wait_for(asyncio.shield(self._task), _LIMIT_S)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


def _run(site: Served, scenario: Callable[[], Awaitable[None]]) -> None:
    async def with_loop() -> None:
        site.parts.services.signals.attach(asyncio.get_running_loop())
        await asyncio.wait_for(scenario(), _LIMIT_S)

    asyncio.run(with_loop())


async def _take_away(site: Served, how: str) -> None:
    method, path, body = CHANGES[how]
    await asyncio.to_thread(lambda: site.ok("home", method, path, body))


@pytest.mark.parametrize("how", CHANGES)
def test_the_stream_of_a_jobs_logs_ends(site: Served, how: str) -> None:
    site.ok("home", "POST", f"{HERE}/jobs", {**JOB, "name": "one"})

    async def scenario() -> None:
        path = f"{HERE}/jobs/one/stream"
        theirs, others = Request(site, "dan", "GET", path), Request(site, "rita", "GET", path)
        for stream in (theirs, others):
            await stream.until_it_answers()
        await _take_away(site, how)
        await theirs.over()
        # It ends between two frames, and whoever follows it asks again, and is told why not.
        assert theirs.status == 200 and theirs.is_complete
        assert not theirs.content or theirs.content.endswith(b"\n")
        assert not others._task.done()
        await others.close()

    _run(site, scenario)


@pytest.mark.parametrize("how", CHANGES)
def test_a_download_is_cut_off(site: Served, how: str) -> None:
    site.ok("home", "POST", f"{HERE}/jobs", {**JOB, "name": "one"})
    services = site.parts.services
    services.logs.append("default", "one", 0, "user_logs/std_log.txt", 0, b"x" * (1 << 20))

    async def scenario() -> None:
        path = f"{HERE}/jobs/one/files/user_logs/std_log.txt"
        theirs = Request(site, "dan", "GET", path, reads=False)
        await theirs.until_it_answers()
        await _take_away(site, how)
        await theirs.over()
        # The connection breaks, so that nobody takes the part for the whole.
        assert theirs.status == 200 and not theirs.is_complete
        assert 0 < len(theirs.content) < 1 << 20

    _run(site, scenario)


@pytest.mark.parametrize("how", CHANGES)
def test_an_upload_ends_with_its_next_bytes(site: Served, how: str) -> None:
    content = b"early" + b"late"
    sha256 = hashlib.sha256(content).hexdigest()

    async def scenario() -> None:
        path = f"{HERE}/blobs/{sha256}"
        theirs = Request(site, "dan", "PUT", path, body=b"early", more_body=True)
        others = Request(site, "carl", "PUT", path, body=b"early", more_body=True)
        for upload in (theirs, others):
            await upload.began.wait()
        await _take_away(site, how)
        await asyncio.sleep(long_connections.CHECK_EVERY_S)
        theirs.go_on.set()
        await theirs.over()
        assert theirs.status in (401, 403) and not site.parts.services.blobs.of("default").has(
            sha256
        )
        others.go_on.set()
        await others.over()
        assert others.status in (200, 201) and site.parts.services.blobs.of("default").has(sha256)

    _run(site, scenario)
