"""What stands between brackets in a text: `${{ … }}` and `$[[ … ]]` of a job's command.

Owns: finding the brackets.
Leaves: what stands in them to jobs/spec/ and to worker/files/.
Always: one pass over the text, however many brackets it opens; the first closing bracket counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator


def contents(text: str, opening: str, closing: str) -> Iterator[str]:
    """What stands between each pair of brackets."""
    for start, end in _pairs(text, opening, closing):
        yield text[start + len(opening) : end - len(closing)]


def replaced(text: str, opening: str, closing: str, replace: Callable[[str], str]) -> str:
    """The text with each pair of brackets replaced; `replace` gets what stands between them."""
    parts = []
    position = 0
    for start, end in _pairs(text, opening, closing):
        parts += [text[position:start], replace(text[start + len(opening) : end - len(closing)])]
        position = end
    return "".join([*parts, text[position:]])


def is_closed(text: str, opening: str, closing: str) -> bool:
    """Whether each opening bracket has a closing one behind it."""
    position = 0
    for _, end in _pairs(text, opening, closing):
        position = end
    return text.find(opening, position) < 0


def _pairs(text: str, opening: str, closing: str) -> Iterator[tuple[int, int]]:
    """(where it opens, the position behind its end) of each pair."""
    position = 0
    while (start := text.find(opening, position)) >= 0:
        end = text.find(closing, start + len(opening))
        if end < 0:
            return
        position = end + len(closing)
        yield start, position
