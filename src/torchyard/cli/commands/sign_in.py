"""Sign in with a browser: the part of `yard login` that needs no token.

Owns: the secret that a sign-in begins with, the port on loopback, the address for the browser,
what is pasted where no browser of this machine is.
Leaves: the provider and the token to the server (sign_in/routes.py), saving it to login.py.
Always: the token comes in the server's answer to this program, never through the browser.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import click

from torchyard.base.errors import NotAuthenticated, NotFound
from torchyard.base.http import Transport

_LIMIT_S = 300.0
# As the server shows it; see sign_in/routes.py.
_CODE_LENGTH = 8
_GRANT_MOST = 4096


def is_offered(transport: Transport) -> bool:
    """Whether the server lets people sign in with a provider; older ones do not know of it."""
    try:
        methods = transport.get("/v1/sign-in")
    except (NotAuthenticated, NotFound):
        return False
    return isinstance(methods, dict) and bool(methods.get("oidc"))


def token_of(transport: Transport, with_browser: bool) -> str:
    """Sign in and return the token that the server gives for it.

    Args:
        with_browser: open one here; else its address is printed and a code is pasted.

    Raises:
        NotAuthenticated: the sign-in was refused, or took too long.
    """
    verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
    digest = hashlib.sha256(verifier.encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    query = {"challenge": challenge, "state": state}
    if with_browser:
        grant = _from_browser(transport.url, query)
    else:
        grant = _pasted(f"{transport.url}/v1/sign-in/start?{urlencode(query)}")
    answer = transport.post("/v1/sign-in/token", {"grant": grant, "verifier": verifier})
    return str(answer["token"])


def _pasted(url: str) -> str:
    click.echo(f"Open this address in a browser and sign in:\n\n{url}\n", err=True)
    grant = str(click.prompt("Paste the code that it shows", hide_input=True, err=True)).strip()
    if not grant or len(grant) > _GRANT_MOST or not grant.isascii() or not grant.isprintable():
        raise NotAuthenticated("that is not the code of a sign-in", "run `yard login` again")
    return grant


def _from_browser(server: str, query: dict[str, str]) -> str:
    import webbrowser

    with _Listener(query["state"]) as listener:
        query = {**query, "port": str(listener.server_port)}
        url = f"{server}/v1/sign-in/start?{urlencode(query)}"
        click.echo(f"Sign in with the browser; if none opens, go to:\n\n{url}\n", err=True)
        code = query["challenge"][:_CODE_LENGTH]
        click.echo(f"It then asks whether this is you, with the code {code}", err=True)
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        answer = listener.wait(_LIMIT_S)
    if "grant" not in answer:
        raise NotAuthenticated(
            answer.get("error", "the sign-in took too long"),
            answer.get("hint") or "run `yard login` again",
            code="sign_in_refused",
        )
    return answer["grant"]


class _Listener(HTTPServer):
    """Hears the browser's one answer, on a port that only this machine reaches."""

    timeout = 0.2

    def __init__(self, state: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._state = state
        self.answer: dict[str, str] = {}

    def wait(self, limit_s: float) -> dict[str, str]:
        """The answer; empty if none came in time."""
        deadline = time.monotonic() + limit_s
        while not self.answer and time.monotonic() < deadline:
            self.handle_request()
        return self.answer

    def take(self, path: str) -> bool:
        """Whether the request is the answer to this sign-in."""
        query = {key: values[0] for key, values in parse_qs(urlsplit(path).query).items()}
        if not hmac.compare_digest(query.get("state", "").encode(), self._state.encode()):
            return False
        if not {"grant", "error"} & query.keys():
            return False
        self.answer = query
        return True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing if a browser hangs up."""


class _Handler(BaseHTTPRequestHandler):
    server: _Listener
    timeout = 5

    def do_GET(self) -> None:
        is_answer = self.server.take(self.path)
        is_grant = "grant" in self.server.answer
        text = "You are signed in. Close this window and go back to the terminal."
        if not is_answer:
            text = "This is not the answer to a sign-in."
        elif not is_grant:
            text = "You are not signed in. The terminal says why."
        content = f"<!doctype html><title>torchyard</title><p>{text}</p>".encode()
        self.send_response(200 if is_answer else 400)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def try_sign_in(transport: Transport, with_browser: bool) -> str | None:
    """A token by sign-in; None if the server offers none."""
    try:
        if not is_offered(transport):
            return None
        return token_of(transport, with_browser)
    finally:
        transport.close()
