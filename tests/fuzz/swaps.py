"""A datastore in which files become links and files again, as fast as threads can rename.

Owns: the app with a datastore of `type: local` whose folder others change, the exchanges, every
route and every upload of a worker that takes a path in it.
Leaves: how long, and what must hold, to the test.
Always: what a request does is drawn from one seed; each is counted by its route.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fuzz.api_under_fuzz import Api, make
from torchyard.azureml.common import containers

SECRET = b"the-secret-beside-the-datastore"
NEW = b"a worker wrote this"
W = "/v1/workspaces/default"
ARM = (
    "/subscriptions/local/resourceGroups/torchyard/providers"
    "/Microsoft.MachineLearningServices/workspaces/default"
)
_URI = "azureml://datastores/nas/paths/"
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIMIT_S = 60.0
# Names that people could give: of files, of what is swapped with a link, of links that stay.
FILES = [
    *("a.txt", "deep/b.txt", "deep/er/c.txt", "link", "folder/b.txt", "MLTable", "table.csv"),
    "dot.png",
]
SWAPPED = ["a.txt", "table.csv", "dot.png", "deep"]
_PNG = b"\x89PNG\r\n\x1a\n" + bytes(32)

# Where a name stands, and the body. `{n}` is a number of its own, `{f}` one of FILES.
REQUESTS: list[tuple[str, str, Any]] = [
    ("GET", f"{W}/data/words/versions/2/files", None),
    ("GET", f"{W}/data/words/versions/2/files/{{f}}", None),
    ("GET", f"{W}/data/one/versions/1/files", None),
    ("GET", f"{W}/data/one/versions/1/files/a.txt", None),
    ("POST", f"{W}/bundle", {"sources": ["data/words/versions/2/files/{f}"]}),
    ("POST", f"{W}/bundle", {"sources": ["jobs/swapped/outputs/out/{f}"]}),
    ("POST", f"{W}/data", {"name": "d{n}", "path": f"{_URI}sets/", "type": "uri_folder"}),
    ("POST", f"{W}/data", {"name": "d{n}", "path": f"{_URI}sets/{{f}}", "type": "uri_file"}),
    ("POST", f"{W}/models", {"name": "m{n}", "path": f"{_URI}sets/deep"}),
    ("POST", f"{W}/models", {"name": "m{n}", "path": f"{_URI}sets/{{f}}"}),
    ("POST", f"{W}/models", {"name": "m{n}", "path": "azureml://jobs/swapped/outputs/out"}),
    ("GET", f"{W}/jobs/swapped/outputs", None),
    ("GET", f"{W}/jobs/swapped/outputs/out/{{f}}", None),
    ("GET", f"{W}/jobs/swapped/preview?output=out&path={{f}}", None),
    ("GET", f"{W}/jobs/swapped/image?output=out&path={{f}}", None),
    ("POST", f"{W}/jobs", {
        "command": "true", "environment": "python",
        "inputs": {"i": {"path": f"{_URI}sets/{{f}}", "type": "uri_file"}},
        "outputs": {"o": {"path": f"{_URI}out/{{f}}"}},
    }),
    ("PUT", f"ARM:{ARM}/codes/c{{n}}/versions/1", {"properties": {"codeUri": f"{_URI}sets"}}),
    ("PUT", f"ARM:{ARM}/codes/c{{n}}/versions/1", {"properties": {"codeUri": f"{_URI}sets/{{f}}"}}),
    ("GET", "/v1/attempts/ATTEMPT/inputs/data", None),
    ("GET", "/v1/attempts/ATTEMPT/inputs/data/files/{f}", None),
    ("GET", "/v1/attempts/ATTEMPT/previous-outputs", None),
    ("GET", "/v1/attempts/ATTEMPT/previous-outputs/out/{f}", None),
    ("PUT", "/v1/attempts/ATTEMPT/outputs/out/{f}", NEW),
    ("PUT", "/v1/attempts/ATTEMPT/outputs/out/deep/new{n}", NEW),
    ("PUT", "/v1/attempts/ATTEMPT/files/outputs/{f}", NEW),
    ("DELETE", "/v1/attempts/ATTEMPT/files/outputs/{f}", None),
    ("PUT", "/v1/attempts/ATTEMPT/logs?offset=0&path=logs/{f}", NEW),
    ("GET", "BLOB:/sets/{f}", None),
    ("HEAD", "BLOB:/sets/{f}", None),
    ("GET", "BLOB:?restype=container&comp=list&prefix=sets/", None),
    ("GET", "BLOB:?restype=container&comp=list&prefix=sets/&delimiter=/", None),
    ("PUT", "BLOB:/out/{f}", NEW),
    ("PUT", "BLOB:/out/deep/blob{n}", NEW),
    ("DELETE", "BLOB:/out/deep/er/c.txt", None),
]  # fmt: skip


@dataclass
class Answer:
    """`route` is the request's template."""

    route: str
    status: int
    body: bytes


@dataclass
class Site:
    """`top` holds the home, the datastore's folder `nas`, and `outside` with the secret."""

    api: Api
    top: Path
    attempt: str
    token: str
    loop: asyncio.AbstractEventLoop
    sas: str = ""
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def nas(self) -> Path:
        return self.top / "nas"

    def ask(self, method: str, target: str, body: Any, file: str) -> Answer:
        number = str(next(self.numbers))
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.api.person}"}
        path = target.replace("{f}", file).replace("{n}", number).replace("ATTEMPT", self.attempt)
        if path.startswith("/v1/attempts/"):
            headers["authorization"] = f"Bearer {self.token}"
        if path.startswith("ARM:"):
            path = f"{path[4:]}?api-version=2024-04-01"
        if path.startswith("BLOB:"):
            container = containers.container("default", "nas")
            path = f"/{container}{path[5:]}{'&' if '?' in path else '?'}{self.sas}"
            headers = {"x-ms-blob-type": "BlockBlob", "x-ms-version": "2021-12-02"}
        if isinstance(body, bytes) or body is None:
            content = body or b""
        else:
            content = json.dumps(body).replace("{f}", file).replace("{n}", number).encode()
        answered = asyncio.run_coroutine_threadsafe(
            _asked(self.api.app, method, path, content, headers), self.loop
        )
        status, answer = answered.result(_LIMIT_S)
        return Answer(f"{method} {target}", status, answer)


async def _asked(
    app: Any, method: str, target: str, content: bytes, headers: dict[str, str]
) -> tuple[int, bytes]:
    raw, _, query = target.partition("?")
    fields = {**headers, "content-length": str(len(content)), "host": "127.0.0.1"}
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1",
        "method": method, "scheme": "http", "path": unquote(raw), "raw_path": raw.encode(),
        "query_string": query.encode(), "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
    }  # fmt: skip
    status, body, sent = 0, b"", False
    ended = asyncio.Event()

    async def receive() -> Any:
        nonlocal sent
        if sent:
            await ended.wait()
            return {"type": "http.disconnect"}
        sent = True
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status, body
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            body += message.get("body", b"")
            if not message.get("more_body"):
                ended.set()

    await app(scope, receive, send)
    return status, body


@contextmanager
def site(top: Path) -> Iterator[Site]:
    """The app, with a running attempt whose input and output are in the datastore."""
    (top / "outside" / "er").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "er/c.txt", "secret", "table.csv", "dot.png"):
        (top / "outside" / name).write_bytes(SECRET)
    for folder in ("sets", "out"):
        _fill(top / "nas" / folder, top / "outside")
    api = make(top / "home")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    made = Site(api, top, "", "", loop)
    try:
        _provision(made)
        yield made
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        api.parts.services.db.close()


def _fill(folder: Path, outside: Path) -> None:
    (folder / "deep" / "er").mkdir(parents=True)
    for name in ("a.txt", "deep/b.txt", "deep/er/c.txt"):
        (folder / name).write_text("inside")
    (folder / "MLTable").write_text("paths:\n- file: ./a.txt\n")
    (folder / "table.csv").write_text("x,y\n1,2\n")
    (folder / "link").symlink_to(outside / "secret")
    (folder / "folder").symlink_to(outside)
    (folder / "dot.png").write_bytes(_PNG)
    for name in SWAPPED:
        (folder / f".{name}").symlink_to(outside if name == "deep" else outside / name)


def _provision(site: Site) -> None:
    def ok(method: str, target: str, body: Any) -> Any:
        answer = site.ask(method, target, body, "")
        assert 0 < answer.status < 300, (answer, body)
        return json.loads(answer.body)

    ok("PUT", f"{W}/datastores/nas", {"type": "local", "path": str(site.nas)})
    ok("POST", f"{W}/data", {"name": "words", "path": f"{_URI}sets", "type": "uri_folder"})
    ok("POST", f"{W}/data", {"name": "one", "path": f"{_URI}sets/a.txt", "type": "uri_file"})
    site.sas = ok("POST", f"ARM:{ARM}/datastores/nas/listSecrets", {})["sasToken"]
    job = {
        "name": "swapped", "command": "true", "environment": "python",
        "inputs": {"data": {"path": f"{_URI}sets", "type": "uri_folder"}},
        "outputs": {"out": {"path": f"{_URI}out/"}},
    }  # fmt: skip
    ok("POST", f"{W}/jobs/running/cancel", {})
    ok("POST", f"{W}/jobs", job)
    deadline = time.monotonic() + _LIMIT_S
    launches = site.api.executor.launches
    while not (plans := [plan for plan in launches if plan.job == "swapped"]):
        assert time.monotonic() < deadline, "the job is never launched"
        site.api.parts.scheduler.run_round()
    site.attempt, site.token = plans[0].attempt_id, plans[0].report_token
    # Groups of routes are imported by their first request, which warns where several do it at once.
    for method, target, body in REQUESTS:
        answer = site.ask(method, target, body, "MLTable")
        assert 0 < answer.status < 500 and SECRET not in answer.body, answer


@contextmanager
def swapping(site: Site) -> Iterator[Callable[[], int]]:
    """Exchange files and folders of the datastore with links to the secret, in two threads.

    Yields what counts the exchanges so far.
    """
    stopped = threading.Event()
    counts: Counter[str] = Counter()

    def swap(folder: Path) -> None:
        pairs = [(folder / name, folder / f".{name}") for name in SWAPPED]
        for file, link in itertools.cycle(pairs):
            if stopped.is_set():
                return
            exchange(file, link)
            counts[folder.name] += 1

    threads = [threading.Thread(target=swap, args=(site.nas / name,)) for name in ("sets", "out")]
    for thread in threads:
        thread.start()
    try:
        yield lambda: sum(counts.values())
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def exchange(one: Path, other: Path) -> None:
    """Exchange two names in one step, where the file system has that."""
    renamed = _LIBC.renameat2(
        _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE
    )
    if renamed == 0:
        return
    aside = one.with_name(f"{one.name}.aside")
    with suppress(OSError):
        os.rename(one, aside)
        os.rename(other, one)
        os.rename(aside, other)


def attack(
    site: Site, seed: int, threads: int, count: int, until_s: float = 0.0
) -> tuple[Counter[str], Counter[str], list[Answer]]:
    """Ask at random: so many requests, or until a moment of the monotonic clock.

    Returns the number of requests of each route, of those that were not refused, and the answers
    that no request may have.
    """
    counted: Counter[str] = Counter()
    done: Counter[str] = Counter()
    wrong: list[Answer] = []
    lock = threading.Lock()
    # Each route is asked as often, in an order that the seed draws.
    rounds = itertools.chain.from_iterable(
        random.Random(f"{seed}-{number}").sample(REQUESTS, len(REQUESTS))
        for number in itertools.count()
    )

    def work(number: int) -> None:
        names = random.Random(f"{seed}-names-{number}")
        while True:
            with lock:
                if len(wrong) > 20 or (sum(counted.values()) >= count and not until_s):
                    return
                if until_s and time.monotonic() >= until_s:
                    return
                method, target, body = next(rounds)
                counted[f"{method} {target}"] += 1
            answer = site.ask(method, target, body, names.choice(FILES))
            if answer.status < 300:
                with lock:
                    done[answer.route] += 1
            if answer.status >= 500 or answer.status == 0 or SECRET in answer.body:
                with lock:
                    wrong.append(answer)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return counted, done, wrong


def stored_with(folder: Path, secret: bytes) -> list[str]:
    """The files below a folder that hold a secret; links are not followed."""
    found = []
    for current, _, names in os.walk(folder):
        for name in names:
            file = Path(current, name)
            if file.is_file() and not file.is_symlink() and secret in file.read_bytes():
                found.append(str(file.relative_to(folder)))
    return found
