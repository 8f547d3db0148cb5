"""The project's words: spelling, and phrases that users would stumble over."""

from __future__ import annotations

import pytest

from style import words


# It reads each file of the tree.
@pytest.mark.timeout(600)
def test_no_retired_word_is_used() -> None:
    assert [str(place) for place in words.places()] == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('def f() -> None:\n    """Ask the heir of a worker."""', "heir"),
        ("def stop(cancelled: bool) -> None: ...", "cancelled"),
        ("raise ValueError('`name` is not a text')", "not a text"),
        ("raise ValueError('the connection broke off')", "broke off"),
        ("print('read the file anew')", "anew"),
        ("print('nothing was written; tell who runs the server')", "tell who runs"),
        ("print('it is in a form that this one does not know')", "in a form that this one"),
    ],
)
def test_a_planted_word_is_seen(text: str, word: str) -> None:
    assert [place.word for place in words.in_python("planted.py", text)] == [word]
