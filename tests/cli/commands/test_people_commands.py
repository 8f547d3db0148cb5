"""Roles, quotas, logins and the audit by the real `yard` against the real server."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Answer, Yard
from cli.real_server import RealServer
from torchyard.base import logins

As = Callable[..., Answer]
JOB = "command: 'true'\nenvironment: python\n"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    server = RealServer(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()


@pytest.fixture
def as_(running: RealServer, yard: Yard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> As:
    """`yard` as a person who logged in, each with a home of their own; `owner` is the server's."""
    for name in ("TORCHYARD_URL", "TORCHYARD_TOKEN", "TORCHYARD_SITE"):
        monkeypatch.delenv(name, raising=False)
    owner = logins.Login(running.url, running.token)
    logins.write(tmp_path / "owner", logins.Logins().with_login(owner))

    def call(who: str, *arguments: object) -> Answer:
        monkeypatch.setenv("TORCHYARD_HOME", str(tmp_path / who))
        return yard(*arguments)

    return call


def let_in(as_: As, running: RealServer, tmp_path: Path, name: str, role: str) -> None:
    answer = as_("owner", "user", "create", name, "--role", role, "-o", "json")
    assert answer.code == 0, answer.err
    token = tmp_path / f"{name}.token"
    token.write_text(json.loads(answer.text)["token"])
    answer = as_(name, "login", running.url, "--token-file", token)
    assert answer.code == 0 and f"as {name}" in answer.text, answer.err


def answer(answer: Answer) -> Any:
    assert answer.code == 0, answer.err
    return json.loads(answer.text)


def test_a_data_scientist_may_this_and_not_that(
    as_: As, running: RealServer, tmp_path: Path
) -> None:
    let_in(as_, running, tmp_path, "anna", "Data Scientist")
    me = answer(as_("anna", "whoami", "-o", "json"))
    assert (me["user"], me["role"], me["server"]) == ("anna", "data scientist", running.url)
    refused = as_("anna", "compute", "create", "-n", "gpu-cluster")
    assert refused.code == 2
    assert "`anna` is a data scientist" in refused.err
    assert "the role `contributor` is required" in refused.err
    assert "(owner)" in refused.err and "yard user role anna 'contributor'" in refused.err
    Path("job.yml").write_text(JOB)
    assert as_("anna", "job", "create", "-f", "job.yml", "-n", "of-anna").code == 0
    assert as_("owner", "job", "create", "-f", "job.yml", "-n", "of-owner").code == 0
    refused = as_("anna", "job", "cancel", "of-owner")
    assert refused.code == 2 and "job `of-owner` belongs to" in refused.err
    assert as_("anna", "job", "cancel", "of-anna").code == 0
    assert as_("owner", "user", "role", "anna", "contributor").code == 0
    assert as_("anna", "compute", "create", "-n", "gpu-cluster").code == 0
    assert as_("anna", "user", "role", "anna", "owner").code == 2


def test_quotas_refuse_and_are_raised(as_: As, running: RealServer, tmp_path: Path) -> None:
    let_in(as_, running, tmp_path, "ben", "data-scientist")
    limits = ("nodes=1", "run_time=1h", "storage=1GB")
    assert as_("owner", "quota", "set", *limits, "--user", "ben").code == 0
    shown = {row["name"]: row["most"] for row in answer(as_("ben", "quota", "list", "-o", "json"))}
    assert shown == {"nodes": 1, "run_time_s": 3600, "storage_bytes": 10**9}
    Path("job.yml").write_text(f"{JOB}resources: {{instance_count: 2}}\n")
    refused = as_("ben", "job", "create", "-f", "job.yml")
    assert refused.code == 2
    assert "quota `nodes` of `ben` in workspace `default` is 1" in refused.err
    assert "yard quota request nodes=2" in refused.err
    long = as_("ben", "job", "create", "-f", "job.yml", "--set", "limits.timeout=7200",
               "resources.instance_count=1")  # fmt: skip
    assert long.code == 2 and "quota `run_time_s`" in long.err
    quota_request = answer(
        as_("ben", "quota", "request", "nodes=2", "--reason", "halves", "-o", "json")
    )
    assert as_("ben", "quota", "approve", quota_request["id"]).code == 2
    assert as_("owner", "quota", "approve", quota_request["id"]).code == 0
    state = answer(as_("ben", "quota", "requests", "-o", "json"))[0]
    assert (state["state"], state["reason"]) == ("approved", "halves")
    assert as_("ben", "job", "create", "-f", "job.yml").code == 0
    assert as_("owner", "quota", "set", "nodes=none", "--user", "ben").code == 0
    ended = as_("owner", "quota", "set", "run_time=none", "storage=none", "--user", "ben")
    assert ended.code == 0 and "There are no quotas left." in ended.err


def test_bad_input(as_: As, running: RealServer, tmp_path: Path) -> None:
    let_in(as_, running, tmp_path, "cleo", "reader")
    for arguments, message in (
        (("user", "role", "cleo", "admin"), "there is no role `admin`"),
        (("user", "role", "cleo", "ownr"), "did you mean `owner`?"),
        (("user", "role", "cloe", "owner"), "did you mean `cleo`?"),
        (("user", "create", "cleo"), "`cleo` already exists"),
        (("user", "create", "dora", "--expires", "soon"), "`soon` is not a time in the future"),
        (
            ("user", "create", "dora", "--expires", "2020-01-01"),
            "a token can't expire at 2020-01-01",
        ),
        (
            ("user", "create", "dora", "--token-name", "a b"),
            "`a b` is not a valid name for a token",
        ),
        (("quota", "set", "nods=1"), "did you mean `nodes`?"),
        (("quota", "set", "nodes"), "`nodes` is not a limit"),
        (("quota", "set", "nodes=many"), "`many` is not a whole number"),
        (("quota", "set", "storage=much"), "`much` is not a size"),
        (("quota", "set", "nodes=1", "--user", "cleo", "--each-user"), "can't be combined"),
        (("quota", "approve", "nope"), "quota request `nope` does not exist"),
        (("user", "token", "revoke", "cleo", "frist"), "did you mean `first`?"),
        (("audit", "--since", "then"), "`then` is not a time in the past"),
    ):
        refused = as_("owner", *arguments)
        assert refused.code == 2 and message in refused.err, (arguments, refused.err)
        assert "hint:" in refused.err
    people = answer(as_("owner", "user", "list", "-o", "json"))
    assert "dora" not in [person["name"] for person in people]
    me = answer(as_("owner", "whoami", "-o", "json"))["user"]
    for last in (
        ("user", "remove", me, "--yes"),
        ("user", "role", me, "reader", "--all-workspaces"),
    ):
        refused = as_("owner", *last)
        assert refused.code == 2 and "is the last owner of this server" in refused.err


def test_an_expired_and_a_revoked_token(as_: As, running: RealServer, tmp_path: Path) -> None:
    let_in(as_, running, tmp_path, "egon", "reader")
    made = answer(as_("owner", "user", "token", "create", "egon", "--token-name", "short",
                      "--expires", "2s", "-o", "json"))  # fmt: skip
    (tmp_path / "short.token").write_text(made["token"])
    import time

    time.sleep(2.1)
    refused = as_("egon", "login", running.url, "--token-file", tmp_path / "short.token")
    assert refused.code == 2 and "the token `short` of `egon` expired at" in refused.err
    assert "yard user token create egon" in refused.err
    # The login that was there before is kept.
    assert as_("egon", "whoami").code == 0
    assert as_("owner", "user", "token", "revoke", "egon", "first").code == 0
    refused = as_("egon", "job", "list")
    assert refused.code == 2 and "was revoked" in refused.err


def test_logging_in_and_out(as_: As, running: RealServer, tmp_path: Path) -> None:
    let_in(as_, running, tmp_path, "fritz", "reader")
    file = tmp_path / "fritz" / logins.FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    listed_logins = answer(as_("fritz", "login", "-o", "json"))
    assert listed_logins == [{"server": running.url, "user": "fritz", "current": True}]
    # Without a token: it is known.
    assert as_("fritz", "login", running.url).code == 0
    assert as_("fritz", "login", "https://a b").code == 2
    nobody = as_("gina", "login", running.url)
    assert nobody.code == 2 and "--token-file" in nobody.err
    wrong = tmp_path / "wrong.token"
    wrong.write_text("yard_p_wrong")
    assert "unknown to this server" in as_("gina", "login", running.url, "--token-file",
                                             wrong).err  # fmt: skip
    assert not (tmp_path / "gina" / logins.FILE).exists()
    assert as_("fritz", "logout", "--revoke").code == 0
    tokens = answer(as_("owner", "user", "token", "list", "fritz", "-o", "json"))
    assert tokens == []
    again = as_("fritz", "logout")
    assert again.code == 2 and "you are not logged in" in again.err


@pytest.mark.parametrize(
    "words",
    [
        ["{url}", "--token-file", "{wrong}"],
        ["{url}", "--token-file", "/no/such/file"],
        ["{url}", "--ca-cert", "{wrong}", "--token-file", "{wrong}"],
        ["http://127.0.0.1:1", "--token-file", "{wrong}"],
        ["htp://gpu-box"],
        ["http://"],
        ["https://gpu-box/path"],
        ["https://gpu-box", "--token", "abc"],
        ["gpu-box:8766", "--tokenfile=x"],
        ["--ca-cert", "ca.pem", "--toke", "https://gpu-box"],
    ],
)
def test_a_login_that_fails_changes_nothing(
    as_: As, running: RealServer, tmp_path: Path, words: list[str]
) -> None:
    wrong = tmp_path / "wrong.token"
    wrong.write_text("yard_p_wrong")
    given = [word.format(url=running.url, wrong=wrong) for word in words]
    assert as_("gina", "login", *given).code != 0
    assert not (tmp_path / "gina" / logins.FILE).exists()
    before = (tmp_path / "owner" / logins.FILE).read_bytes()
    assert as_("owner", "login", *given).code != 0
    assert (tmp_path / "owner" / logins.FILE).read_bytes() == before
    assert answer(as_("owner", "whoami", "-o", "json"))["server"] == running.url


def test_the_environment_counts_before_a_login(
    as_: As, running: RealServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_in(as_, running, tmp_path, "hans", "reader")
    monkeypatch.setenv("TORCHYARD_URL", running.url)
    monkeypatch.setenv("TORCHYARD_TOKEN", running.token)
    assert answer(as_("hans", "whoami", "-o", "json"))["role"] == "owner"
    monkeypatch.delenv("TORCHYARD_TOKEN")
    assert answer(as_("hans", "whoami", "-o", "json"))["user"] == "hans"


def test_a_shared_machine_starts_no_server_by_surprise(
    as_: As, yard: Yard, running: RealServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "server.json"
    site.write_text(json.dumps({"url": running.url}))
    monkeypatch.setenv("TORCHYARD_SITE", str(site))
    monkeypatch.setenv("HOME", str(tmp_path / "someone"))
    monkeypatch.delenv("TORCHYARD_HOME")
    for arguments in (("job", "list"), ("whoami",)):
        refused = yard(*arguments)
        assert refused.code == 2 and f"yard login {running.url}" in refused.err
    refused = yard("server", "start")
    assert refused.code == 2 and "this machine has a shared server" in refused.err
    assert not (tmp_path / "someone" / ".torchyard" / "server.json").exists()
    site.write_text("[]")
    assert "names no server" in yard("job", "list").err


def test_the_audit_tells(as_: As, running: RealServer, tmp_path: Path) -> None:
    let_in(as_, running, tmp_path, "ida", "reader")
    Path("job.yml").write_text(JOB)
    assert as_("ida", "job", "create", "-f", "job.yml").code == 2
    lines = answer(as_("owner", "audit", "--user", "ida", "--since", "1h", "-o", "json"))
    assert {line["outcome"] for line in lines} == {"refused"}
    assert any(line["path"].endswith("/jobs") and line["from"] == "127.0.0.1" for line in lines)
    table = as_("owner", "audit", "--here")
    assert table.code == 0 and "refused" in table.text
    assert as_("ida", "audit").code == 2


@pytest.mark.slow
def test_a_private_certificate(as_: As, tmp_path: Path) -> None:
    import os
    import signal
    import subprocess
    import sys
    import time

    from app.test_listeners import CERTIFICATE, KEY

    home, certificate, key = tmp_path / "tls", tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.write_text(CERTIFICATE)
    key.write_text(KEY)
    tls = ["--tls-cert", str(certificate), "--tls-key", str(key)]
    words = ["--host", "0.0.0.0", "--port", "0", "--jobs-as-server-user", *tls]
    server = subprocess.Popen(
        [sys.executable, "-m", "torchyard.server", "--home", str(home), *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TORCHYARD_HOME": str(home)},
    )
    try:
        deadline = time.monotonic() + 60
        while not (home / "server.json").exists() or not (home / "tls-port").exists():
            assert server.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        url = f"https://localhost:{(home / 'tls-port').read_text()}"
        login = ("login", url, "--token-file", home / "token")
        refused = as_("jo", *login)
        assert refused.code == 1
        assert "is not trusted" in refused.err and "--ca-cert FILE" in refused.err
        assert as_("jo", *login, "--ca-cert", key).code == 2
        assert as_("jo", *login, "--ca-cert", certificate).code == 0
        assert answer(as_("jo", "whoami", "-o", "json"))["server"] == url
        assert as_("jo", "job", "list").code == 0
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) is not None
