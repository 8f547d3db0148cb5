"""The project's words: identifiers, messages, help and documents use none that was retired."""

from __future__ import annotations

import pytest

from style import words


# It reads each file of the tree.
@pytest.mark.timeout(600)
def test_no_retired_word_is_used() -> None:
    assert [str(place) for place in words.places()] == []


def test_every_exception_is_needed_and_says_why() -> None:
    unused = []
    for allowed in words.ALLOWED:
        assert allowed.reason, allowed
        path = words.ROOT / allowed.path
        if not any(allowed.covers(place) for place in words.places([path], allowed=())):
            unused.append(allowed)
    assert unused == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("def f(guardian_pid: int) -> None: ...", "guardian"),
        ("class WorkerVerdict: ...", "verdict"),
        ("def f() -> None:\n    found = 1", "found"),
        ("def look() -> None: ...", "look"),
        ("raise ValueError('x is no number at all')", "is no number"),
        ('def f() -> None:\n    """Ends it, whoever asked."""', "whoever"),
        ("# the heir of a worker", "heir"),
        ("is_own = True", "is_own"),
        ("class A:\n    known: int = 0", "known"),
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


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("def f(place: str) -> None: ...", "place"),
        ("def f() -> None:\n    for wanted in (): ...", "wanted"),
        ("class A:\n    kept: int = 0\n    def f(self) -> None:\n        kept = 1", "kept"),
    ],
)
@pytest.mark.parametrize("file", ["src/torchyard/planted.py", "tests/test_planted.py"])
def test_a_local_says_what_it_holds(text: str, word: str, file: str) -> None:
    planted = words.in_python(file, text)
    assert [place.word for place in planted] == [word]
