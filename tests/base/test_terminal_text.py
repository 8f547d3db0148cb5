"""No text of a stranger controls a terminal, and programs get the same value."""

from __future__ import annotations

import json

import pytest

from torchyard.base.terminal_text import ColouredBytes, coloured, escaped, escaped_json, plain

HOSTILE = [
    "\x1b]0;owned\x07",
    "\x1b]8;;http://evil\x1b\\",
    "\x1b[2J\x1b[1;1H",
    "\x9b2J",
    "\x9d0;owned\x9c",
    "\u202eevil\u2066x\u2069\u200e",
    "\r\x08\x7f\x00",
    "a\u2028b\u2029c\x85",
    "\U000e0041\U000f0000",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_controls_the_terminal(text: str) -> None:
    text = f"größe 日本 {text} \x1b[31mred\x1b[0m"
    for shown in (plain(text), escaped(text), escaped_json(text)):
        assert shown.isprintable() and shown.startswith("größe 日本 ")
    without_colours = coloured(text).replace("\x1b[31m", "").replace("\x1b[0m", "")
    assert without_colours.isprintable() and "\x1b[31mred\x1b[0m" in coloured(text)
    value = {text: [text]}
    assert json.loads(escaped_json(json.dumps(value, ensure_ascii=False))) == value


def test_lines_stay_and_plain_text_has_no_colours() -> None:
    assert plain("a\n\x1b[1mb\x1b[0m") == "a\nb" and plain(None) == ""
    assert coloured("a\nb\tc") == "a\nb       c"


@pytest.mark.parametrize("text", HOSTILE)
def test_bytes_that_come_in_pieces_control_no_terminal(text: str) -> None:
    content = (
        f"größe {text.encode(errors='replace').decode()} \x1b[31mred\x1b[0m 50%\r\tend\n".encode()
    )
    for size in (1, 2, 3, len(content)):
        cleaned = ColouredBytes()
        pieces = [content[start : start + size] for start in range(0, len(content), size)]
        shown = b"".join(cleaned.take(piece) for piece in pieces).decode()
        assert "größe " in shown and shown.endswith(" \x1b[31mred\x1b[0m 50%\r\tend\n")
        rest = shown.replace("\x1b[31m", "").replace("\x1b[0m", "")
        assert not [
            c for c in rest if c in "\x1b\x00\x07\x08\x7f\x85\x9b\x9c\x9d\u202e\u2066\u2069\u200e"
        ]


def test_output_without_controls_stays_as_it_is() -> None:
    content = "größe 日本 \x1b[1;32mok\x1b[0m\n".encode() + b"\xff\xfe not text\r\n"
    assert ColouredBytes().take(content) == content
