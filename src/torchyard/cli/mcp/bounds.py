"""What of an answer is sent when all of it would be too long for an agent to read.

Owns: the limits, shortening of texts and lists, the end of a log.
Always: an answer says what it leaves out; control characters of logs are removed as in lists.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from torchyard.base.terminal_text import plain
from torchyard.client.printing import last_state

Value = TypeVar("Value")

LOG_CHARACTERS = 20_000
"""Of all logs in one answer."""
LOG_BYTES = 1 << 18
"""What is read from the end of a log."""
LINE_CHARACTERS = 2_000
MESSAGE_CHARACTERS = 2_000
VALUE_CHARACTERS = 300
DOCUMENT_CHARACTERS = 10_000
MOST_ENTRIES, LIST_CHARACTERS = 50, 10_000
"""Of a list or a mapping within an answer."""


def shortened(text: str, characters: int = VALUE_CHARACTERS) -> str:
    """The text's beginning, and how much is missing."""
    if len(text) <= characters:
        return text
    return f"{text[:characters]}… ({len(text) - characters} more characters)"


def first(
    values: Sequence[Value],
    what: str,
    left_out: list[str],
    most: int = MOST_ENTRIES,
    characters: int = LIST_CHARACTERS,
) -> list[Value]:
    """The first values, one at least; `left_out` gets a line on the others.

    Args:
        what: the plural of what they are.
        characters: that they may have together, as JSON.
    """
    kept: list[Value] = []
    for value in values[:most]:
        characters -= len(json.dumps(value, ensure_ascii=False, default=str))
        if kept and characters < 0:
            break
        kept.append(value)
    if len(kept) < len(values):
        left_out.append(f"{len(values) - len(kept)} of {len(values)} {what}")
    return kept


def first_entries(
    values: Mapping[str, Any], what: str, left_out: list[str], characters: int = LIST_CHARACTERS
) -> dict[str, Any]:
    """As `first`, of a mapping whose long strings are shortened."""
    entries = [
        (shortened(key), shortened(value) if isinstance(value, str) else value)
        for key, value in values.items()
    ]
    return dict(first(entries, what, left_out, characters=characters))


def last_lines(content: bytes, lines: int, characters: int, is_whole: bool) -> tuple[str, bool]:
    """The last lines of a log, plain, and whether they are all of it.

    Args:
        content: its end.
        lines: at most.
        characters: at most, except that a single line may be of `LINE_CHARACTERS`.
        is_whole: whether `content` begins where the log does.
    """
    raw = content.removesuffix(b"\n").split(b"\n")
    if not is_whole and len(raw) > 1:
        del raw[0]  # begins somewhere in its line
    kept: list[str] = []
    size = 0
    is_all = is_whole
    for line in reversed(raw):
        text, is_all_of_line = _line(line)
        if len(kept) == lines or (kept and size + len(text) > characters):
            is_all = False
            break
        is_all = is_all and is_all_of_line
        kept.append(text)
        size += len(text) + 1
    return "\n".join(reversed(kept)), is_all


def _line(content: bytes) -> tuple[str, bool]:
    """The line as it looks in the end, of a long one its two ends; whether that is all of it."""
    text = plain(last_state(content).decode("utf-8", "replace"))
    if len(text) <= LINE_CHARACTERS:
        return text, True
    half = LINE_CHARACTERS // 2
    return f"{text[:half]} … {text[-half:]}", False
