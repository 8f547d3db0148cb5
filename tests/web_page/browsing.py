"""What the tests of the page share: windows, jobs to look at, noticing what must never happen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    """Names of jobs that have ended: two that learned, one that failed, one that is hostile, and
    two sweeps, one of them by ASHA.
    """

    done: str = "quick-0-5"
    slower: str = "quick-0-05"
    failed: str = "broken"
    hostile: str = "hostile"
    sweep: str = "search"
    asha: str = "rungs"


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
