"""Tokens are masked wherever a log is cut."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchyard.shared.masking import LONGEST, mask, unfinished
from torchyard.workspaces import jwts

TOKEN = b"yard_a_" + b"Zz09_-" * 7 + b"Q"
HEAD = jwts.HEAD.encode() + b"."
JWT = HEAD + b"eyJhdWQiOiJ4In0" + b"." + b"Zz09_-" * 7 + b"Q"
PIECES = st.sampled_from(
    [TOKEN, TOKEN[:20], b"yard_", b"y", b"\n", b"\xff", b"yard_x_abc", b"text ", JWT, JWT[:70],
     JWT[:90], HEAD[:20], b"e", b"."]
)  # fmt: skip


def test_a_token_becomes_as_many_stars() -> None:
    assert len(TOKEN) == 50
    assert mask(b"a " + TOKEN + b"!") == b"a " + b"*" * 50 + b"!"
    assert mask(b"nothing \xff here") == b"nothing \xff here"


@pytest.mark.parametrize("kind", [b"p", b"a", b"r"])
def test_every_kind_of_token(kind: bytes) -> None:
    assert mask(b"yard_" + kind + b"_" + b"k" * 43) == b"*" * 50


@pytest.mark.parametrize("text", [TOKEN[:-1], b"yard_q_" + b"k" * 43, b"yard-a-" + b"k" * 43])
def test_what_is_no_token_stays(text: bytes) -> None:
    assert mask(text) == text


@pytest.mark.parametrize(
    ("tail", "held_bytes"),
    [(b"", 0), (b"abc", 0), (b"y", 1), (b"yar", 3), (b"yard_", 5), (b"yard_a", 6), (b"yard_b", 0),
     (b"yard_a_", 7), (TOKEN[:-1], 49), (TOKEN, 0), (b"yyard_p_x", 8), (b"yard_a_x y", 1),
     (b"e", 1), (b"xeyJh", 4), (HEAD, len(HEAD)), (JWT, 0),
     (JWT[:-1], len(JWT) - 1), (JWT[:70], 70), (HEAD + b"e30.yard_a_", len(HEAD) + 11)],
)  # fmt: skip
def test_what_may_go_on_is_held_back(tail: bytes, held_bytes: int) -> None:
    assert unfinished(b"x\n" + tail) == held_bytes


@settings(deadline=None, max_examples=200)
@given(st.lists(PIECES, max_size=12), st.data())
def test_masking_does_not_depend_on_the_cut(pieces: list[bytes], data: st.DataObject) -> None:
    joined = b"".join(pieces)
    masked = mask(joined)
    assert len(masked) == len(joined)
    assert not re.search(rb"yard_[par]_[A-Za-z0-9_-]{43}", masked)
    assert JWT not in masked
    cut = data.draw(st.integers(0, len(joined)))
    first = mask(joined[: cut + LONGEST - 1])[:cut]
    start = max(0, cut - LONGEST + 1)
    assert first + mask(joined[start:])[cut - start :] == masked


def test_the_tokens_of_azures_clients(tmp_path: Path) -> None:
    signer = jwts.Signer(tmp_path, "a server")
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    for user, audience in (("a", "x"), ("m" * 64, "https://" + "r" * 192)):
        made = signer.sign("yard_p_" + "k" * 43, user, audience, now).encode()
        assert len(made) <= LONGEST
        assert mask(b"a " + made + b"!") == b"a " + b"*" * len(made) + b"!"
    others = b"eyJhbGciOiJSUzI1NiJ9.eyJhdWQiOiJ4In0." + b"k" * 43
    assert mask(others) == others


def test_a_jwt_is_masked_wherever_it_is_cut() -> None:
    content = b"a\n" + JWT + JWT + b" " + JWT[:-1]
    masked = mask(content)
    for cut in range(len(content)):
        held_bytes = unfinished(content[:cut])
        assert mask(content[: cut - held_bytes]) == masked[: cut - held_bytes]
