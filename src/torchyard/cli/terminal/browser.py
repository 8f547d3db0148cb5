"""Open the web page in a browser.

Owns: whether a window can be opened here, the link that signs in, opening it.
Leaves: which page to the commands, what the link is good for to the server.
Always: a command doesn't wait for the browser.
"""

from __future__ import annotations

import sys
import threading
from typing import Any
from urllib.parse import quote

from torchyard.base import settings
from torchyard.base.http import Transport


def is_here() -> bool:
    """Whether a window can be opened here, not over SSH on another machine."""
    if settings.is_set("BROWSER"):
        return True
    if settings.is_set("SSH_CONNECTION"):
        return False
    is_desktop = settings.is_set("DISPLAY") or settings.is_set("WAYLAND_DISPLAY")
    return is_desktop or sys.platform in ("darwin", "win32")


def sign_in_link(transport: Transport, page: str = "") -> dict[str, Any]:
    """`url` and `expires_at` of a link that signs in once, then shows `page`, a path below /ui/."""
    answer = transport.post("/v1/sign-in/links", {})
    then = f"&next={quote(page)}" if page else ""
    return {"url": f"{transport.url}{answer['path']}{then}", "expires_at": answer["expires_at"]}


def jobs_page(workspace: str, name: str = "") -> str:
    """The path of a job's page, or of the list of jobs."""
    below = f"/{quote(name, safe='')}" if name else ""
    return f"/ui/workspaces/{quote(workspace, safe='')}/jobs{below}"


def show(transport: Transport, page: str, with_window: bool = True) -> dict[str, Any]:
    """Get a link to a page, open it where that is possible, and return it."""
    link = sign_in_link(transport, page)
    if with_window and is_here():
        _open(link["url"])
    return link


def _open(url: str) -> None:
    import webbrowser

    # A browser of the terminal would hold the command until it is closed.
    opening = threading.Thread(target=webbrowser.open, args=(url,), daemon=True)
    opening.start()
    opening.join(2.0)
