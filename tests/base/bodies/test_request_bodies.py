"""Request bodies: where they are kept, and what all of them together may take."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from torchyard.base.bodies import request_bodies
from torchyard.base.bodies.body_spool import IN_MEMORY_BYTES, ArrivingBody, BodySpool
from torchyard.base.errors import InvalidInput, LimitExceeded, ServerBusy

_CHUNK_BYTES = 64 << 10
_LIMIT_BYTES = 16 << 20


def _request(spool: BodySpool, body: bytes, content_type: str = "application/json") -> Request:
    chunks = [body[at : at + _CHUNK_BYTES] for at in range(0, len(body), _CHUNK_BYTES)] or [b""]
    messages = [
        {"type": "http.request", "body": chunk, "more_body": number < len(chunks) - 1}
        for number, chunk in enumerate(chunks)
    ]

    async def receive() -> Any:
        return messages.pop(0)

    scope = {
        "type": "http",
        "method": "POST",
        "app": SimpleNamespace(state=SimpleNamespace(body_spool=spool)),
        "headers": [(b"content-type", content_type.encode()), (b"transfer-encoding", b"chunked")],
    }
    return Request(scope, receive)


def _run(
    folder: Path, act: Callable[[BodySpool], Coroutine[Any, Any, None]], **budgets: int
) -> BodySpool:
    """Act on a spool; in the end it has given back all that it took."""
    spool = BodySpool(folder / "spool", **budgets)
    before = spool.memory.free_bytes, spool.disk.free_bytes
    asyncio.run(act(spool))
    assert (spool.memory.free_bytes, spool.disk.free_bytes) == before
    return spool


def test_a_short_body_stays_in_memory(tmp_path: Path) -> None:
    async def act(spool: BodySpool) -> None:
        async with request_bodies.with_body(_request(spool, b'{"a": 1}'), _LIMIT_BYTES) as body:
            assert await body.json() == {"a": 1}

    _run(tmp_path, act)
    assert not (tmp_path / "spool").exists()


def test_a_long_body_is_on_disk_until_it_is_complete(tmp_path: Path) -> None:
    content = os.urandom(5 << 20)

    async def act(spool: BodySpool) -> None:
        free_bytes = spool.memory.free_bytes
        body = ArrivingBody(spool)
        for at in range(0, len(content), _CHUNK_BYTES):
            await body.add(content[at : at + _CHUNK_BYTES])
            assert free_bytes - spool.memory.free_bytes <= IN_MEMORY_BYTES
        assert body.is_spooled and spool.memory.free_bytes == free_bytes
        assert body.content() == content
        # No name: whatever ends the server, the space is free again.
        assert os.listdir(tmp_path / "spool") == []
        assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o700
        body.drop()
        request = _request(spool, content, "application/octet-stream")
        async with request_bodies.with_body(request, _LIMIT_BYTES) as read_body:
            assert await read_body.body() == content

    _run(tmp_path, act)


def test_short_bodies_go_to_disk_when_memory_is_short(tmp_path: Path) -> None:
    async def act(spool: BodySpool) -> None:
        async with AsyncExitStack() as stack:
            for number in range(20):
                body = json.dumps([number] * 2_000).encode()
                read_body = await stack.enter_async_context(
                    request_bodies.with_body(_request(spool, body), _LIMIT_BYTES)
                )
                assert await read_body.json() == [number] * 2_000
            assert spool.memory.free_bytes >= 0

    _run(tmp_path, act, memory_bytes=100_000)


def test_bodies_beyond_the_disks_share_are_refused(tmp_path: Path) -> None:
    async def act(spool: BodySpool) -> None:
        first = ArrivingBody(spool)
        for _ in range(50):
            await first.add(bytes(_CHUNK_BYTES))
        request = _request(spool, bytes(4 << 20))
        with pytest.raises(ServerBusy, match="holds too many large requests") as refused:
            async with request_bodies.with_body(request, _LIMIT_BYTES):
                pass
        assert refused.value.http_status == 503 and refused.value.hint
        assert request.scope[request_bodies.BUSY]
        first.drop()
        async with request_bodies.with_body(_request(spool, bytes(4 << 20)), _LIMIT_BYTES):
            pass

    _run(tmp_path, act, disk_bytes=5 << 20)


def test_what_a_killed_server_left_is_removed(tmp_path: Path) -> None:
    spool = BodySpool(tmp_path)
    spool.clear()
    for name, age_s in (("old", 7200), ("new", 10)):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)
    spool.clear()
    assert os.listdir(tmp_path) == ["new"]


@pytest.mark.parametrize(
    "text", ["[" + "[]," * (1 << 20) + "0]", "[" + "0," * (1 << 21) + "0]",
             '{"a":' + "{}," * (1 << 20), " \n<a>" + "<b/>" * (1 << 20),
             "\ufeff[" + "[]," * (1 << 20) + "0]",
             " " * (2 << 20) + "[" + "[]," * (1 << 20) + "0]"],
    ids=["lists", "numbers", "objects", "elements", "byte order mark", "spaces"],
)  # fmt: skip
def test_a_document_has_a_bounded_number_of_values(tmp_path: Path, text: str) -> None:
    """Each takes up to a hundred times its text's memory."""

    async def act(spool: BodySpool) -> None:
        request = _request(spool, text.encode())
        with pytest.raises(LimitExceeded, match="more than 250,000 values"):
            async with request_bodies.with_body(request, _LIMIT_BYTES):
                pass

    _run(tmp_path, act)


def test_a_file_and_other_text_may_have_any_number_of_commas(tmp_path: Path) -> None:
    async def act(spool: BodySpool) -> None:
        for content, kind, is_file in (
            (b"0," * (1 << 21), "text/csv", False),
            (b"[" + b"0," * (1 << 21), "application/octet-stream", False),
            (b"[" + b"0," * (1 << 21), "application/json", True),
        ):
            request = _request(spool, content, kind)
            async with request_bodies.with_body(request, _LIMIT_BYTES, is_file) as body:
                assert await body.body() == content

    _run(tmp_path, act)


def test_large_bodies_are_worked_on_one_at_a_time(tmp_path: Path) -> None:
    seen: list[str] = []

    async def act(spool: BodySpool) -> None:
        async def work(name: str, size_bytes: int) -> None:
            request = _request(spool, b'"' + b"x" * size_bytes + b'"')
            async with request_bodies.with_body(request, _LIMIT_BYTES):
                seen.append(f"{name} begins")
                await asyncio.sleep(0.01)
                seen.append(f"{name} ends")

        await asyncio.gather(*(work(name, 2 << 20) for name in "abcd"))

    _run(tmp_path, act)
    order = [line[0] for line in seen]
    assert sorted(set(order)) == ["a", "b", "c", "d"]
    assert seen == [f"{name} {verb}" for name in order[::2] for verb in ("begins", "ends")]


def test_a_small_body_does_not_wait_for_large_ones(tmp_path: Path) -> None:
    async def act(spool: BodySpool) -> None:
        async with spool.working():
            async with request_bodies.with_body(_request(spool, b"[1]"), _LIMIT_BYTES) as body:
                assert await body.json() == [1]

    _run(tmp_path, act)


def test_who_waits_too_long_for_its_turn_is_told_to_come_back(tmp_path: Path) -> None:
    async def act(spool: BodySpool) -> None:
        async with spool.working():
            request = _request(spool, bytes(2 << 20))
            with pytest.raises(ServerBusy, match="works on too many large requests"):
                async with request_bodies.with_body(request, _LIMIT_BYTES):
                    pass
            assert request.scope[request_bodies.BUSY]
            waiting = asyncio.create_task(spool.working().__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        async with spool.working():  # nothing is missing
            pass

    spool = BodySpool(tmp_path / "spool", wait_limit_s=0.05)
    asyncio.run(act(spool))


@pytest.mark.parametrize(
    "body", [b'{"a": ["\\ud800"]}', b'{"\\udc00": 1}', b'[[{"a": {"b": "x\\u0000"}}]]'],
    ids=["half a pair", "in a name", "nul"],
)  # fmt: skip
def test_text_that_no_database_stores_is_refused(tmp_path: Path, body: bytes) -> None:
    async def act(spool: BodySpool) -> None:
        with pytest.raises(InvalidInput, match=r"surrogate pair|NUL character"):
            async with request_bodies.with_body(_request(spool, body), _LIMIT_BYTES):
                pass
        fine = b'["\\ud83d\\ude00", "\\\\u0000"]'
        async with request_bodies.with_body(_request(spool, fine), _LIMIT_BYTES) as read_body:
            assert await read_body.json() == ["😀", "\\u0000"]

    _run(tmp_path, act)
