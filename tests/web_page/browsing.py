"""What the tests of the page share: windows, jobs to look at, noticing what must never happen."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

WAIT_MS = 150_000
AXE = Path(__file__).parents[2] / "ui/node_modules/axe-core/axe.min.js"
# As root it has no sandbox; containers give /dev/shm 64 MB. Nothing is asked of the Internet.
CHROMIUM = (
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass
class Watched:
    """What a browser's pages did that they must not."""

    home: str
    faults: list[str] = field(default_factory=list)

    def watch(self, page: Any) -> None:
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("console", self._console)
        page.on("request", self._request)

    def _console(self, message: Any) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.faults.append(f"console: {message.text}")

    def _request(self, request: Any) -> None:
        if not request.url.startswith((f"{self.home}/", "data:", "blob:")):
            self.faults.append(f"request: {request.url}")


@dataclass(frozen=True)
class Jobs:
    """Names of jobs that have ended: two that learned, one that failed, one that is hostile, two
    sweeps, one of them by ASHA, and a pipeline that reused a step of `first_pipeline`.
    """

    done: str = "quick-0-5"
    slower: str = "quick-0-05"
    failed: str = "broken"
    hostile: str = "hostile"
    sweep: str = "search"
    asha: str = "rungs"
    first_pipeline: str = "digits-1"
    pipeline: str = "digits-2"


def until(page: Any, condition: str, limit_s: float = WAIT_MS / 1000) -> bool:
    """Whether a condition in JavaScript becomes true; Playwright's own waiting needs `eval`."""
    for _ in range(int(limit_s * 10)):
        if page.evaluate(condition):
            return True
        page.wait_for_timeout(100)
    return False


def serious_issues(page: Any) -> list[Any]:
    """What axe, which is in the page already, calls serious or critical."""
    report = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        (violation["id"], [node["html"][:120] for node in violation["nodes"]][:4])
        for violation in report["violations"]
        if violation["impact"] in ("serious", "critical")
    ]


@contextmanager
def started_chromium() -> Iterator[Any]:
    """The machine's own Chromium, driven by Playwright from PyPI."""
    program = shutil.which("chromium")
    if program is None or find_spec("playwright") is None:
        assert os.environ.get("TORCHYARD_TEST_SERVICES") != "required", "run `make test-ui`"
        pytest.skip("`make test-ui` installs Chromium and playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(CHROMIUM))
        yield browser
        browser.close()


def cookies_of(chromium: Any, yard: Any) -> Any:
    """Those of a browser that opened the link that `yard ui` prints."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(yard("ui", "--no-open").strip(), timeout=WAIT_MS)
    # The link itself names the list of jobs: what is there only once the cookie is.
    page.get_by_role("navigation", name="Sections").wait_for(timeout=WAIT_MS)
    state = context.storage_state()
    context.close()
    return state


def token_of(yard: Any) -> str:
    """That of the person whose home the server has."""
    token: str = (yard.home / "token").read_text().strip()
    return token


def ask(server: str, token: str, path: str, body: Any = None) -> str:
    """What the server answers; a `body` is posted."""
    request = urllib.request.Request(
        server + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        content: str = answer.read().decode()
        return content


def sign_in(page: Any, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.keyboard.press("Enter")
    page.get_by_role("navigation", name="Sections").wait_for()


class Line:
    """A way to a server that can be cut, as one that a machine slept through.

    `requests` are the addresses of the event streams that were asked for over it.
    """

    def __init__(self, server: str) -> None:
        address = urlsplit(server)
        self._server = (address.hostname, address.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[str] = []
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._is_cut = False

    def __enter__(self) -> Line:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _start(self, target: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def cut(self) -> None:
        self._is_cut = True
        for end in list(self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._is_cut = False

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                if self._is_cut:
                    near.close()
                    continue
                far = socket.create_connection(self._server)
                self._open |= {near, far}
                self._start(self._pass, near, far)
                self._start(self._pass, far, near)

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError), source:
            while content := source.recv(65536):
                self.requests += re.findall(r"GET (\S+/events\S*) ", content.decode("latin-1"))
                target.sendall(content)
            target.shutdown(socket.SHUT_RDWR)
        self._open.discard(source)


@contextmanager
def window(
    chromium: Any, signed_in: Any, width: int = 1280, height: int = 900, theme: str = "light"
) -> Iterator[Any]:
    """A window of its own, of a person who is signed in; what is open at its end may be kept."""
    context = chromium.new_context(
        viewport={"width": width, "height": height},
        color_scheme=theme,
        storage_state=signed_in,
        reduced_motion="reduce",
    )
    context.set_default_timeout(WAIT_MS)
    try:
        yield context
        folder = os.environ.get("TORCHYARD_KEEP_SCREENSHOTS")
        for number, page in enumerate(context.pages if folder else ()):
            page.screenshot(path=f"{folder}/{os.getpid()}-{id(context)}-{number}.png")
    finally:
        context.close()
