"""Mutated requests, cut anywhere: the real router stays, and its slots come back."""

from __future__ import annotations

import time
from random import Random

from endpoints.router.router_process import KEY, PATH, RouterProcess, wait_until
from torchyard.endpoints.router.table import Batching, DeploymentRow

ONE_DATABASE = True
_HEAD = f"host: h\r\nauthorization: Bearer {KEY}\r\ncontent-type: application/json\r\n"
_SEEDS = [
    f"POST {PATH}/rows HTTP/1.1\r\n{_HEAD}content-length: 15\r\n\r\n" + '{"data": [1,2]}',
    f"POST {PATH}/rows HTTP/1.1\r\n{_HEAD}transfer-encoding: chunked\r\n\r\n"
    '8\r\n{"data":\r\n6\r\n [1,2]\r\n1\r\n}\r\n0\r\n\r\n',
    f"GET {PATH}/stream?n=3 HTTP/1.1\r\n{_HEAD}expect: 100-continue\r\n\r\n",
    f"GET {PATH}/ws HTTP/1.1\r\n{_HEAD}connection: upgrade\r\nupgrade: websocket\r\n\r\nbytes",
    f"HEAD {PATH}/score HTTP/1.0\r\n{_HEAD}connection: keep-alive\r\n\r\n",
    f"OPTIONS http://h{PATH}/score?a#b HTTP/1.1\r\n{_HEAD}\r\n",
]
_PIECES = [
    b"\r\n",
    b"\0",
    b"\r",
    b"\n",
    b":",
    b" ",
    b"chunked",
    b"-1",
    b"99999999999999999999",
    b"/",
]


def _mutated(random: Random) -> bytes:
    data = b"".join(random.choice(_SEEDS).encode() for _ in range(random.randint(1, 3)))
    for _ in range(random.randint(0, 4)):
        at = random.randrange(len(data))
        until = at + random.choice((0, 1, 5))
        data = data[:at] + random.choice(_PIECES) + data[until:]
    return data[: random.randint(1, len(data))] if random.random() < 0.3 else data


def test_mutated_requests_leave_the_router_as_it_was(router: RouterProcess) -> None:
    server = router.model("blue-1")
    row = DeploymentRow((server.row(),), max_concurrent=4, batching=Batching(4, 1))
    router.write({"blue": row})
    random = Random(95)
    for _ in range(400):
        data = _mutated(random)
        with router.open() as opened:
            at = random.randint(0, len(data))
            opened.sendall(data[:at])
            if random.random() < 0.2:
                time.sleep(0.005)
            try:
                opened.sendall(data[at:])
                opened.settimeout(0.01)
                opened.recv(65536)
            except (TimeoutError, ConnectionError):
                pass
    wait_until(lambda: router.statistics("blue")["in_flight"] == {"blue-1": 0})
    wait_until(lambda: router.ask("statistics")["connections"] == 0)
    statistics = router.ask("statistics")
    assert statistics["held_bytes"] == 0
    assert router.statistics("blue")["queued"] == 0
    assert router.request("/score").status == 200
    assert "Traceback" not in router.log() and "Fatal" not in router.log(), router.log()[-3000:]
