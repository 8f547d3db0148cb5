"""The sentences that users see, in one table: tests/sentences.yml.

A test asserts codes, places and values itself, and hands what users read to the fixture
`sentence`, which compares it with the test's row. `make fix` rewrites the rows; read its diff.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from torchyard.base.errors import TorchyardError

TABLE = Path(__file__).with_name("sentences.yml")
_IS_WRITING = os.environ.get("TORCHYARD_WRITE_SENTENCES") == "1"
_PRINTED = re.compile(
    r"error: (?:(?P<place>[\w./-]+:\d+(?::\d+)?): )?(?P<message>.*)(?:\nhint: (?P<hint>.*))?"
)
_FOLDER_OF_TEST = re.compile(r"/[^\s`']*/pytest-\d+/(?:popen-gw\d+/)?(\w+?)\d+\b")
_rows: dict[str, dict[str, str]] = {}


class Sentence:
    """Records, or compares, what the test of one node id shows its users."""

    def __init__(self, name: str) -> None:
        self._name = name

    def is_of(self, error: TorchyardError) -> None:
        place = ".".join(map(str, error.at))
        self._compare(code=error.code, place=place, message=error.message, hint=error.hint)

    def is_answer(self, body: Mapping[str, Any]) -> None:
        """Of an answer over HTTP."""
        error = body["error"]
        place = ".".join(map(str, error["at"]))
        self._compare(code=error["code"], place=place, message=error["message"], hint=error["hint"])

    def is_printed(self, stderr: str) -> None:
        """Of the first error that a command has printed."""
        printed = _PRINTED.search(stderr)
        assert printed, stderr
        self._compare(**{key: value or "" for key, value in printed.groupdict().items()})

    def _compare(self, **row: str) -> None:
        row = {key: _FOLDER_OF_TEST.sub(r"/\1", value) for key, value in row.items() if value}
        if _IS_WRITING:
            _rows[self._name] = row
            return
        recorded = _recorded().get(self._name)
        assert row == recorded, f"not as recorded in {TABLE.name}: `make fix`, then read its diff"


def _recorded() -> dict[str, dict[str, str]]:
    if not _rows and TABLE.exists():
        _rows.update(yaml.safe_load(TABLE.read_text(encoding="utf-8")) or {})
    return _rows


def write() -> None:
    """Put the rows of this session into the table; `make fix` begins with an empty one."""
    if _IS_WRITING:
        before = yaml.safe_load(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
        text = yaml.safe_dump({**(before or {}), **_rows}, allow_unicode=True, width=10_000)
        TABLE.write_text(text, encoding="utf-8")


@pytest.fixture
def sentence(request: pytest.FixtureRequest) -> Sentence:
    # It is the same on every database.
    name = re.sub(r"\[(?:sqlite|postgres)(?:-|(?=\]))", "[", request.node.nodeid)
    return Sentence(name.removeprefix("tests/").removesuffix("[]"))
