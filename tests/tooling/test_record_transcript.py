"""Recording a page of commands again: what is a command, what is replaced."""

from __future__ import annotations

import record_transcript

PAGE = """# A page

Recorded on a machine (2026-11-21).

    $ yard first
    old
    $ uv is what it printed
    $ yard second

Text between them stays.

    $ yard third
    old

The end.
"""


def test_only_lines_of_yard_are_typed() -> None:
    assert record_transcript.commands_of(PAGE) == ["yard first", "yard second", "yard third"]


def test_outputs_are_replaced_and_text_stays() -> None:
    page = record_transcript.rewritten(PAGE, [["1", "", "2"], [], ["3"]])
    assert "old" not in page and "uv is" not in page and "(2026-11-21)" not in page
    assert "    $ yard first\n    1\n\n    2\n    $ yard second\n\nText between them" in page
    assert page.endswith("    $ yard third\n    3\n\nThe end.\n")
