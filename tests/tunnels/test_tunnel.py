"""The server's end of a tunnel: credit, order, ends, and a node that misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from torchyard.base.errors import Conflict, Unreachable
from torchyard.shared import channels
from torchyard.shared.channels import BadFrames, Decoder, Frame
from torchyard.tunnels.registry import Tunnels
from torchyard.tunnels.tunnel import ChannelClosed, Tunnel


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 30))


def sent_by(tunnel: Tunnel) -> list[Frame]:
    """What would go to the node."""
    data = b"".join(tunnel._unsent)
    tunnel._unsent.clear()
    return Decoder().feed(data)


def test_frames_are_the_same_however_their_bytes_are_cut() -> None:
    frames = [Frame(1, channels.DATA, b"x" * 1000), Frame(2, channels.END), Frame(7, 3, b"yy")]
    data = b"".join(frame.to_bytes() for frame in frames)
    decoder = Decoder()
    assert [frame for byte in data for frame in decoder.feed(bytes([byte]))] == frames


def test_a_frame_that_is_too_long_is_refused_before_it_is_read() -> None:
    with pytest.raises(BadFrames):
        Decoder().feed(b"\0\0\0\1\2\xff\xff\xff\xff")


def test_a_writer_waits_for_credit_and_goes_on_with_it() -> None:
    async def write() -> None:
        tunnel = Tunnel()
        channel = tunnel.open({"kind": "shell"})
        sent_by(tunnel)
        writing = asyncio.ensure_future(channel.write(b"z" * (channels.WINDOW_BYTES + 10)))
        await asyncio.sleep(0.05)
        assert not writing.done()
        first = sent_by(tunnel)
        assert sum(len(frame.payload) for frame in first) == channels.WINDOW_BYTES
        tunnel.receive(Frame(1, channels.CREDIT, channels.credit(10)).to_bytes())
        await writing
        assert [len(frame.payload) for frame in sent_by(tunnel)] == [10]

    run(write())


def test_a_node_that_floods_a_channel_loses_its_tunnel() -> None:
    async def flood() -> None:
        tunnel = Tunnel()
        channel = tunnel.open({})
        piece = Frame(1, channels.DATA, b"f" * (32 << 10)).to_bytes()
        with pytest.raises(BadFrames):
            for _ in range(channels.WINDOW_BYTES // (32 << 10) + 1):
                tunnel.receive(piece)
        assert tunnel.is_over and channel.is_over

    run(flood())


def test_a_reader_gets_what_came_before_the_end_and_then_nothing() -> None:
    async def read() -> None:
        tunnel = Tunnel()
        channel = tunnel.open({})
        for frame in (Frame(1, channels.DATA, b"a"), Frame(1, channels.DATA, b"b"), Frame(1, 3)):
            tunnel.receive(frame.to_bytes())
        assert [await channel.read() for _ in range(4)] == [b"a", b"b", b"", b""]

    run(read())


def test_a_reader_gives_credit_back() -> None:
    async def read() -> None:
        tunnel = Tunnel()
        channel = tunnel.open({})
        sent_by(tunnel)
        for _ in range(channels.WINDOW_BYTES // (32 << 10)):
            tunnel.receive(Frame(1, channels.DATA, b"f" * (32 << 10)).to_bytes())
        for _ in range(channels.WINDOW_BYTES // (32 << 10)):
            await channel.read()
        credits = [frame for frame in sent_by(tunnel) if frame.kind == channels.CREDIT]
        credit_bytes = sum(channels.credited(frame.payload) for frame in credits)
        assert credit_bytes == channels.WINDOW_BYTES

    run(read())


def test_a_closed_channel_says_why() -> None:
    async def read() -> None:
        tunnel = Tunnel()
        channel = tunnel.open({})
        tunnel.receive(Frame(1, channels.CLOSE, b'{"message": "gone fishing"}').to_bytes())
        with pytest.raises(ChannelClosed, match="gone fishing"):
            await channel.read()
        with pytest.raises(ChannelClosed):
            await channel.write(b"x")

    run(read())


def test_a_tunnel_has_no_more_channels_than_it_may() -> None:
    async def fill() -> None:
        tunnel = Tunnel()
        opened = [tunnel.open({}) for _ in range(channels.MOST_CHANNELS)]
        with pytest.raises(Conflict):
            tunnel.open({})
        opened[0].close()
        tunnel.open({})

    run(fill())


def test_a_channel_waits_for_the_tunnel_that_the_node_opens() -> None:
    async def open() -> None:
        tunnels, notices = Tunnels(), []
        opening = asyncio.ensure_future(
            tunnels.channel(("a", 1), {"kind": "shell"}, lambda: notices.append(1))
        )
        await asyncio.sleep(0)
        assert notices == [1]
        assert tunnels.is_wanted("a", 1) and not tunnels.is_wanted("a", 0)
        tunnel = Tunnel()
        tunnels.add(("a", 1), tunnel)
        await opening
        assert not tunnels.is_wanted("a", 1)
        assert [frame.kind for frame in sent_by(tunnel)] == [channels.HELLO, channels.OPEN]

    run(open())


def test_a_second_tunnel_of_a_node_ends_the_first() -> None:
    async def replace() -> None:
        tunnels, first, second = Tunnels(), Tunnel(), Tunnel()
        tunnels.add(("a", 0), first)
        tunnels.add(("a", 0), second)
        assert first.is_over and not second.is_over
        assert tunnels.find_by_name(("a", 0), first.name) is None
        with pytest.raises(Unreachable):
            first.open({})

    run(replace())
