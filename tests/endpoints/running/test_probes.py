"""What probes say of an instance, by a server that answers as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from torchyard.endpoints.running.probes import Prober
from torchyard.endpoints.spec.settings import Probe
from torchyard.shared import unix_sockets

_QUICK = Probe(initial_delay=0, period=1, timeout=5, success_threshold=2, failure_threshold=2)
_PATIENT = Probe(initial_delay=0, period=1, timeout=5, success_threshold=1, failure_threshold=60)
_LIMIT_S = 60.0


def _with_instance(
    folder: Path,
    check: Callable[[dict[str, int], str], Awaitable[None]],
) -> None:
    async def run() -> None:
        status = {"code": 200}

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.write(b"HTTP/1.1 %d Said\r\ncontent-length: 0\r\n\r\n" % status["code"])
            writer.close()

        # Longer than an address may be.
        path = folder / ("h" * 120) / "socket"
        listener = unix_sockets.listen(path)
        assert listener is not None
        async with await asyncio.start_unix_server(answer, sock=listener):
            await check(status, str(path))

    asyncio.run(run())


async def _until(condition: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(wait(), _LIMIT_S)


def test_an_instance_that_fails_its_readiness_probe_is_unready_until_it_succeeds(
    tmp_path: Path,
) -> None:
    async def check(status: dict[str, int], path: str) -> None:
        changes: list[bool] = []
        prober = Prober(
            path, _QUICK, _PATIENT, False, False, lambda: changes.append(prober.is_ready)
        )
        await _until(lambda: prober.is_ready)
        status["code"] = 503
        await _until(lambda: not prober.is_ready)
        assert "503" in prober.error and not prober.is_dead
        status["code"] = 200
        await _until(lambda: prober.is_ready)
        assert changes == [True, False, True]
        prober.close()

    _with_instance(tmp_path, check)


def test_one_that_served_before_is_not_replaced_for_its_readiness(tmp_path: Path) -> None:
    async def check(status: dict[str, int], path: str) -> None:
        status["code"] = 503
        prober = Prober(path, _QUICK, _PATIENT, True, False, lambda: None)
        await asyncio.sleep(0)
        assert not prober.is_ready and not prober.is_dead
        status["code"] = 200
        await _until(lambda: prober.is_ready)
        assert not prober.is_dead
        prober.close()

    _with_instance(tmp_path, check)
