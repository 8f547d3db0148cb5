"""Which server is meant: the environment, a login, the machine's file, one's own; in that order."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from torchyard.base import logins, settings
from torchyard.base.errors import InvalidInput
from torchyard.base.logins import Login, Logins


def test_a_file_that_only_its_user_reads(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert logins.read(home) == Logins()
    first, second = Login("https://a:1", "yard_p_a"), Login("https://b:1", "yard_p_b", "/ca", "dan")
    logins.write(home, Logins().with_login(first).with_login(second))
    assert stat.S_IMODE((home / logins.FILE).stat().st_mode) == 0o600
    saved = logins.read(home)
    assert saved.current == second.url and saved.servers == {first.url: first, second.url: second}
    assert logins.read(home).without(second.url) == Logins("", {first.url: first})
    assert [path.name for path in home.iterdir()] == [logins.FILE]
    assert "yard_p_b" not in repr(saved)


@pytest.mark.parametrize("content", ["", "[]", '{"current": ""}', '{"servers": {"a": 1}}'])
def test_another_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / logins.FILE).write_text(content)
    with pytest.raises(InvalidInput, match=logins.FILE):
        logins.read(tmp_path)


def test_what_counts_before_what(tmp_path: Path) -> None:
    home, site = tmp_path / "home", tmp_path / "server.json"
    site.write_text(json.dumps({"url": "https://site:1/", "ca_cert": "/site.pem"}))
    base = {"HOME": str(tmp_path), "TORCHYARD_SITE": str(site)}
    environ = {**base, "TORCHYARD_HOME": str(home)}
    assert settings.read(environ).url == ""
    logins.write(home, Logins().with_login(Login("https://login:1", "yard_p_a", "/ca")))
    resolved = settings.read(environ)
    assert (resolved.url, resolved.token, resolved.ca_cert) == (
        "https://login:1",
        "yard_p_a",
        "/ca",
    )
    assert resolved.url_from == "yard login"
    resolved = settings.read({**environ, "TORCHYARD_URL": "https://login:1/"})
    assert (resolved.token, resolved.url_from) == ("yard_p_a", "TORCHYARD_URL")
    resolved = settings.read({**environ, "TORCHYARD_URL": "https://x:1", "TORCHYARD_TOKEN": "t"})
    assert (resolved.url, resolved.token, resolved.ca_cert) == ("https://x:1", "t", "")
    assert settings.read({**environ, "TORCHYARD_URL": "https://x:1"}).token == ""
    assert settings.read({**environ, "TORCHYARD_CA_CERT": "/mine"}).ca_cert == "/mine"


def test_the_machines_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    site = tmp_path / "server.json"
    assert settings.read({"TORCHYARD_SITE": str(site)}).url == ""
    site.write_text(json.dumps({"url": "https://site:1/", "ca_cert": "/site.pem"}))
    resolved = settings.read({"TORCHYARD_SITE": str(site)})
    assert (resolved.url, resolved.ca_cert, resolved.url_from) == (
        "https://site:1",
        "/site.pem",
        str(site),
    )
    site.write_text("{}")
    with pytest.raises(InvalidInput, match="names no server"):
        settings.read({"TORCHYARD_SITE": str(site)})


@pytest.mark.parametrize(
    ("text", "url"),
    [("gpu-box:8766", "https://gpu-box:8766"), ("http://127.0.0.1:1/", "http://127.0.0.1:1")],
)
def test_addresses(text: str, url: str) -> None:
    assert logins.url_of(text) == url


@pytest.mark.parametrize("text", ["", "ftp://a", "https://", "https://a/b", "https://u:p@a"])
def test_no_addresses(text: str) -> None:
    with pytest.raises(InvalidInput):
        logins.url_of(text)
