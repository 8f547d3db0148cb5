"""What of an answer is sent when all of it would be too long for an agent to read.

Owns: the limits, shortening of texts and lists, the end of a log.
Always: what is left out is said; control characters of logs are left out as in lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TypeVar

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
MOST_ENTRIES = 50
"""Of a list or a mapping within an answer."""


def shortened(text: str, characters: int = VALUE_CHARACTERS) -> str:
    """The text's beginning, and how much is missing."""
    if len(text) <= characters:
        return text
    return f"{text[:characters]}… ({len(text) - characters} more characters)"


def first(
    values: Sequence[Value], what: str, left_out: list[str], most: int = MOST_ENTRIES
) -> list[Value]:
    """The first values; `left_out` gets a line on the others, `what` being their plural."""
    if len(values) > most:
        left_out.append(f"{len(values) - most} of {len(values)} {what}")
    return list(values[:most])


def first_entries(values: Mapping[str, str], what: str, left_out: list[str]) -> dict[str, str]:
    """As `first`, of a mapping whose long values are shortened."""
    if len(values) > MOST_ENTRIES:
        left_out.append(f"{len(values) - MOST_ENTRIES} of {len(values)} {what}")
    return {
        shortened(key): shortened(str(value)) for key, value in islice(values.items(), MOST_ENTRIES)
    }


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
