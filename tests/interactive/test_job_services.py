"""Services of real jobs through the proxy of a real server: their owner, others, hostile ones."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from end_to_end.yard_under_test import ENDED, Yard, wait_until
from interactive.service_visits import Visitor
from torchyard.base.errors import Conflict, Forbidden, NotFound, TorchyardError
from torchyard.base.http import Transport

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
_JOBS = "/v1/workspaces/default/jobs"
_HOSTILE = Path(__file__).with_name("hostile_service.py")


def states(transport: Transport, job: str) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in transport.get(f"{_JOBS}/{job}/services")["value"]}


def link(transport: Transport, job: str, service: str) -> str:
    return str(transport.post(f"{_JOBS}/{job}/services/{service}/link", {"node": None})["url"])


def wait_for_state(transport: Transport, job: str, service: str, state: str) -> None:
    wait_until(
        lambda: states(transport, job).get(service, {}).get("state") == state,
        240,
        f"{service} of {job} is {state}",
    )


def _page_session(person: Transport) -> str:
    """The token of a session that the web page has begun for them."""
    body = json.dumps({"code": person.post("/v1/sign-in/links", {})["code"]}).encode()
    headers = {
        "Content-Type": "application/json",
        "Origin": person.url,
        "X-Torchyard-Page": "1",
    }
    request = urllib.request.Request(f"{person.url}/v1/sign-in/session", body, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        cookie: str = answer.headers["Set-Cookie"]
    return cookie.partition(";")[0].partition("=")[2]


def submit(transport: Transport, name: str, **more: Any) -> None:
    transport.post(_JOBS, {"name": name, "command": "sleep 600", "environment": "python", **more})


@pytest.fixture(scope="module")
def of_ada(yard: Yard, people: dict[str, Transport]) -> Iterator[str]:
    """A running job of ada's with two hostile services."""
    command = f"exec python {_HOSTILE}"
    submit(
        people["ada"],
        "services-of-ada",
        services={
            "one": {"type": "custom", "properties": {"command": command}},
            "two": {"type": "custom", "properties": {"command": command}},
        },
    )
    for service in ("one", "two"):
        wait_for_state(people["ada"], "services-of-ada", service, "Running")
    yield "services-of-ada"
    people["ada"].post(f"{_JOBS}/services-of-ada/cancel?now=true")
    # A server that stops before the worker has heard of it leaves the job as it is.
    wait_until(
        lambda: not any("hostile_service" in process for process in yard.processes()),
        120,
        "the job's processes have ended",
    )


@pytest.fixture(autouse=True)
def nothing_goes_on() -> None:
    """The module's job runs from test to test."""


@pytest.mark.smoke
def test_a_link_lets_its_owner_in_once(people: dict[str, Transport], of_ada: str) -> None:
    address = link(people["ada"], of_ada, "one")
    visitor = Visitor.signed_in(address)
    reply = visitor.get("/path?query=1")
    answer = json.loads(reply.body)
    assert (reply.status, answer["path"]) == (200, "/path?query=1")
    again, path = Visitor.of(address)
    assert again.get(path).status == 401
    assert again.get("/").status == 401
    data = b"x" * (5 << 20)
    assert json.loads(visitor.get("/", "POST", data).body)["bytes"] == len(data)


def test_others_get_no_link_and_owners_of_the_workspace_do(
    people: dict[str, Transport], of_ada: str
) -> None:
    for name in ("bob", "carl", "rita"):
        with pytest.raises(Forbidden):
            link(people[name], of_ada, "one")
    assert Visitor.signed_in(link(people["owner"], of_ada, "one")).get("/").status == 200


def test_a_jobs_own_token_gets_no_link(
    yard: Yard, people: dict[str, Transport], of_ada: str
) -> None:
    plan = json.loads((yard.node_of(of_ada).parent / "plan.json").read_text())
    job = Transport(people["ada"].url, plan["run_token"])
    with pytest.raises(Forbidden):
        link(job, of_ada, "one")
    job.close()


def test_a_session_opens_no_other_service(people: dict[str, Transport], of_ada: str) -> None:
    visitor = Visitor.signed_in(link(people["ada"], of_ada, "one"))
    other, path = Visitor.of(link(people["ada"], of_ada, "two"))
    assert other.host != visitor.host
    other.cookies = dict(visitor.cookies)
    assert other.get("/").status == 401
    stolen = Visitor(other.host)
    assert stolen.get(path.replace("code=", "code=x")).status == 401
    wrong_host = Visitor(visitor.host)
    assert wrong_host.get(path).status == 401
    assert other.get(path).status == 401, "the code is gone, no matter who tried it"


def test_a_service_gets_no_cookie_of_torchyard_and_sets_none(
    people: dict[str, Transport], of_ada: str
) -> None:
    visitor = Visitor.signed_in(link(people["ada"], of_ada, "one"))
    session = visitor.cookies["torchyard_service"]
    visitor.cookies["torchyard_session"] = "of-the-page"
    reply = visitor.get("/", Authorization="Bearer kept-from-nobody")
    answer = json.loads(reply.body)
    assert session not in reply.body.decode() and "of-the-page" not in reply.body.decode()
    assert not any(name.lower() == "cookie" for name, _ in answer["headers"])
    assert reply.headers.get_all("Set-Cookie") == ["mine=1; Path=/"]
    assert "Strict-Transport-Security" not in reply.headers
    assert visitor.get("/").status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.localhost"},
        {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "no-cors"},
        {"Origin": "null"},
    ],
)
def test_pages_of_other_services_reach_nothing(
    people: dict[str, Transport], of_ada: str, headers: dict[str, str]
) -> None:
    visitor = Visitor.signed_in(link(people["ada"], of_ada, "one"))
    assert visitor.get("/", "POST", b"", **headers).status == 403
    with visitor.upgraded("/", **headers) as connection:
        assert connection.recv(64).startswith(b"HTTP/1.1 403")


def test_websockets_pass_in_both_directions(people: dict[str, Transport], of_ada: str) -> None:
    visitor = Visitor.signed_in(link(people["ada"], of_ada, "one"))
    with visitor.upgraded("/", Origin=f"http://{visitor.host}") as connection:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += connection.recv(1)
        assert head.startswith(b"HTTP/1.1 101")
        for message in (b"ping", b"z" * 300_000):
            connection.sendall(message)
            got = b""
            while len(got) < len(message):
                got += connection.recv(65536)
            assert got == message


def test_a_flood_that_nobody_reads_fills_no_memory(
    yard: Yard, people: dict[str, Transport], of_ada: str
) -> None:
    visitor = Visitor.signed_in(link(people["ada"], of_ada, "one"))
    pid = json.loads((yard.home / "server.json").read_text())["pid"]
    before = _resident_bytes(pid)
    connections = []
    for _ in range(8):
        import socket

        connection = socket.create_connection(("127.0.0.1", visitor._port), timeout=60)
        lines = "".join(f"{name}: {value}\r\n" for name, value in visitor.headers.items())
        connection.sendall(f"GET /flood HTTP/1.1\r\n{lines}\r\n".encode())
        connections.append(connection)
    time.sleep(8)
    grown = _resident_bytes(pid) - before
    for connection in connections:
        connection.close()
    assert grown < 100 << 20, f"{grown >> 20} MiB more"
    assert visitor.get("/").status == 200


@pytest.mark.parametrize("path", ["/silent", "/garbage", "/endless-head"])
def test_a_service_that_answers_badly_is_told(
    people: dict[str, Transport], of_ada: str, path: str
) -> None:
    visitor = Visitor.signed_in(link(people["ada"], of_ada, "one"))
    reply = visitor.get(path)
    assert reply.status == 502 and b"does not answer" in reply.body
    assert "default-src 'none'" in (reply.headers["Content-Security-Policy"] or "")


def test_a_service_that_dies_is_started_again(people: dict[str, Transport], of_ada: str) -> None:
    visitor = Visitor.signed_in(link(people["ada"], of_ada, "two"))
    assert visitor.get("/die").status == 502
    wait_until(
        lambda: (
            states(people["ada"], of_ada)["two"]["restarts"] >= 1
            and states(people["ada"], of_ada)["two"]["state"] == "Running"
        ),
        120,
        "it runs again",
    )
    assert visitor.get("/").status == 200


def test_who_loses_the_role_loses_the_service(people: dict[str, Transport], of_ada: str) -> None:
    people["owner"].post("/v1/users", {"name": "eve", "role": "owner", "workspace": "default"})
    token = people["owner"].post("/v1/users/eve/tokens", {"name": "t"})["token"]
    eve = Transport(people["owner"].url, token)
    visitor = Visitor.signed_in(link(eve, of_ada, "one"))
    assert visitor.get("/").status == 200
    people["owner"].delete("/v1/users/eve")
    wait_until(lambda: visitor.get("/").status == 403, 60, "eve is refused")
    eve.close()


@pytest.mark.parametrize("how", ["person", "role", "token", "session"])
def test_an_open_connection_ends_with_the_right_to_it(
    people: dict[str, Transport], of_ada: str, how: str
) -> None:
    owner, name = people["owner"], f"eve-{how}"
    owner.post("/v1/users", {"name": name, "role": "owner", "workspace": "default"})
    eve = Transport(owner.url, owner.post(f"/v1/users/{name}/tokens", {"name": "t"})["token"])
    page = Transport(owner.url, _page_session(eve)) if how == "session" else eve
    visitor = Visitor.signed_in(link(page, of_ada, "one"))
    page.close()  # which opens again if it is asked again
    with visitor.upgraded("/", Origin=f"http://{visitor.host}") as connection:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += connection.recv(1)
        connection.sendall(b"ping")
        assert connection.recv(64) == b"ping"
        if how == "person":
            owner.delete(f"/v1/users/{name}")
        elif how == "role":
            owner.put("/v1/workspaces/default/people/" + name, {"role": "contributor"})
        elif how == "token":
            owner.delete(f"/v1/users/{name}/tokens/t")
        else:
            (session,) = (each for each in eve.get(f"/v1/users/{name}/tokens")["value"]
                          if each["name"].startswith("page-"))  # fmt: skip
            owner.delete(f"/v1/users/{name}/tokens/{session['name']}")
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(64) == b""
    assert visitor.get("/").status == 403
    eve.close()


def test_hosts_that_are_none_and_bad_requests_are_refused(
    people: dict[str, Transport], of_ada: str
) -> None:
    visitor, _ = Visitor.of(link(people["ada"], of_ada, "one"))
    port = visitor.host.rpartition(":")[2]
    for host in ("127.0.0.1", "localhost", "nobody.localhost", f"{'a' * 24}.evil.example"):
        assert Visitor(f"{host}:{port}").get("/").status == 404
    reply = visitor.get("/", Transfer_Encoding="chunked", Content_Length="5")
    assert reply.status in (400, 401)


def test_services_that_are_not_there_are_refused_by_name(
    people: dict[str, Transport], of_ada: str
) -> None:
    with pytest.raises(NotFound, match="no service `three`"):
        link(people["ada"], of_ada, "three")
    for services, message in (
        ({"x": {"type": "custom"}}, "neither a `port`"),
        ({"x": {"type": "jupyter"}}, "jupyter"),
        ({"a/b": {"type": "custom", "port": 1}}, "not a valid name"),
        ({"x": {"type": "custom", "port": 99999}}, "not a port"),
        ({"x": {"type": "custom", "port": 1, "nodes": "some"}}, "nodes: some"),
    ):
        with pytest.raises(TorchyardError, match=message):
            submit(people["ada"], "refused", services=services)


def test_a_job_is_held_after_its_script_and_released(
    yard: Yard, people: dict[str, Transport]
) -> None:
    owner = people["owner"]
    with pytest.raises(TorchyardError, match=r"torchyard\.hold"):
        submit(owner, "bad-hold", torchyard={"hold": "soon"})
    for name, command, status in (
        ("held-well", "echo done", "Completed"),
        ("held-badly", "exit 3", "Failed"),
    ):
        submit(owner, name, command=command, torchyard={"hold": "20m"})
        wait_until(
            lambda name=name: any(  # type: ignore[misc]
                "held until" in notice for notice in owner.get(f"{_JOBS}/{name}")["notices"]
            ),
            120,
            "it is held",
        )
        assert owner.get(f"{_JOBS}/{name}")["status"] == "Running"
        assert yard("job", "shell", name, "--", "echo", "still here") == "still here\n"
        yard("job", "release", name)
        job = yard.wait(name)
        assert job["status"] == status, job["error"]
    assert owner.get(f"{_JOBS}/held-badly")["exit_code"] == 3
    with pytest.raises(Conflict, match="not held"):
        owner.post(f"{_JOBS}/held-well/release")


def test_a_job_whose_script_runs_is_not_released(people: dict[str, Transport], of_ada: str) -> None:
    with pytest.raises(Conflict, match="not held"):
        people["ada"].post(f"{_JOBS}/{of_ada}/release")
    assert people["ada"].get(f"{_JOBS}/{of_ada}")["status"] not in ENDED


def _resident_bytes(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) * 1024
