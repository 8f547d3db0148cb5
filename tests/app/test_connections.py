"""Who gets a connection when there are many."""

from __future__ import annotations

import asyncio
import ipaddress

import pytest

from torchyard.app.connections import (
    ConnectionLimits,
    Connections,
    ReadingTurns,
    Slot,
    Stage,
)


class _Opened:
    """A connection that records whether it was closed for another."""

    def __init__(self, connections: Connections, host: str) -> None:
        self.closed = False
        self.slot = connections.admit(host, self._close)

    def _close(self) -> None:
        self.closed = True

    def now(self, stage: Stage) -> _Opened:
        assert isinstance(self.slot, Slot)
        self.slot.enter(stage)
        return self


def test_an_address_gets_no_more_than_its_share() -> None:
    connections = Connections(ConnectionLimits(total=100, per_address=3))
    many = [_Opened(connections, "192.0.2.1").now(Stage.BUSY) for _ in range(3)]
    assert _Opened(connections, "192.0.2.1").slot is None
    assert _Opened(connections, "192.0.2.2").slot is not None
    assert connections.refused == 1
    assert many[0].slot is not None
    many[0].slot.release()
    assert _Opened(connections, "192.0.2.1").slot is not None


def test_a_network_of_ipv6_is_one_address() -> None:
    connections = Connections(ConnectionLimits(total=100, per_address=2))
    for host in ("2001:db8::1", "2001:db8::ffff:2"):
        assert _Opened(connections, host).now(Stage.BUSY).slot is not None
    assert _Opened(connections, "2001:db8:0:0:abcd::3").slot is None
    assert _Opened(connections, "2001:db8:0:1::1").slot is not None
    for host in ("192.0.2.1", "::ffff:192.0.2.1"):
        assert _Opened(connections, host).now(Stage.BUSY).slot is not None
    assert _Opened(connections, "192.0.2.1").slot is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "10.0.0.7"])
def test_workers_on_loopback_and_proxies_have_the_total_alone(host: str) -> None:
    limits = ConnectionLimits(5, 2, unlimited=[ipaddress.ip_network("10.0.0.0/24")])
    connections = Connections(limits)
    for _ in range(5):
        assert _Opened(connections, host).now(Stage.BUSY).slot is not None
    assert _Opened(connections, host).slot is None


def test_idle_connections_of_the_largest_client_are_closed_first() -> None:
    connections = Connections(ConnectionLimits(total=6, per_address=5))
    small = _Opened(connections, "192.0.2.1").now(Stage.IDLE)
    waiting = _Opened(connections, "192.0.2.2")
    busy = _Opened(connections, "192.0.2.2").now(Stage.BUSY)
    first, second, third = (
        _Opened(connections, "192.0.2.2").now(Stage.IDLE) for _ in range(3)
    )  # the largest client
    newcomers = []
    for expected in (first, second, third, waiting, small):
        newcomers.append(_Opened(connections, "192.0.2.3").now(Stage.BUSY))
        assert newcomers[-1].slot is not None and expected.closed
        assert len(connections) == 6
    assert not busy.closed
    assert _Opened(connections, "192.0.2.4").slot is None


def test_a_connection_that_is_used_again_is_no_longer_idle() -> None:
    connections = Connections(ConnectionLimits(total=2))
    used = _Opened(connections, "192.0.2.1").now(Stage.IDLE)
    idle = _Opened(connections, "192.0.2.1").now(Stage.IDLE)
    used.now(Stage.BUSY)
    _Opened(connections, "192.0.2.2")
    assert idle.closed and not used.closed


def test_what_was_closed_or_released_leaves_nothing() -> None:
    connections = Connections(ConnectionLimits(total=1))
    first = _Opened(connections, "192.0.2.1")
    second = _Opened(connections, "192.0.2.2")
    assert first.closed and first.slot is not None and second.slot is not None
    first.now(Stage.IDLE)  # what is still on its way from a closed connection
    first.slot.release()
    second.slot.release()
    second.slot.release()
    assert len(connections) == 0 and not connections._clients


def test_there_are_never_more_than_files_allow() -> None:
    assert 64 <= Connections(ConnectionLimits(total=1 << 30)).total < 1 << 30


def test_one_that_fails_in_its_turn_keeps_no_other_waiting() -> None:
    async def act() -> list[int]:
        turns, done = ReadingTurns(), list[int]()
        failures = list[object]()
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: failures.append(context)
        )

        def fail() -> None:
            raise AttributeError("resume_reading")

        turns.wait(fail)
        turns.wait(lambda: done.append(1))
        await asyncio.sleep(0.05)
        turns.wait(lambda: done.append(2))
        await asyncio.sleep(0.05)
        assert len(failures) == 1
        return done

    assert asyncio.run(act()) == [1, 2]


def test_a_connection_that_still_sends_a_response_is_not_closed_for_another() -> None:
    connections = Connections(ConnectionLimits(total=2))
    older, newer = (_Opened(connections, "192.0.2.1").now(Stage.IDLE) for _ in range(2))
    assert older.slot is not None and newer.slot is not None
    older.slot.is_sending = lambda: True
    assert _Opened(connections, "192.0.2.2").slot is not None
    assert newer.closed and not older.closed
    other = next(iter(connections._clients["192.0.2.2"].waiting))
    other.is_sending = lambda: True
    assert _Opened(connections, "192.0.2.3").slot is None
    assert not older.closed
