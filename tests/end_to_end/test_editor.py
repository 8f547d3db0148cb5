"""What an editor shows of a job file: the YAML language server with `yard schema job`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from end_to_end.yard_under_test import REPOSITORY
from required import missing

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(180)]

_SERVER = REPOSITORY / ".yaml-language-server/node_modules/.bin/yaml-language-server"
_FIRST_LINE = "# yaml-language-server: $schema=job.schema.json\n"


class Editor:
    """A client of the language server, over its standard input and output."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [_SERVER, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder
        )
        self._number = 0
        self.ask("initialize", {"processId": None, "rootUri": folder.as_uri(), "capabilities": {}})
        self._send({"method": "initialized", "params": {}})
        settings = {
            "yaml": {"validate": True, "completion": True, "schemaStore": {"enable": False}}
        }
        self._send({"method": "workspace/didChangeConfiguration", "params": {"settings": settings}})

    def open(self, name: str, text: str) -> list[dict[str, Any]]:
        """What the editor marks in the file."""
        document = {"uri": self._uri(name), "languageId": "yaml", "version": 1, "text": text}
        self._send({"method": "textDocument/didOpen", "params": {"textDocument": document}})
        while True:
            message = self._read()
            if message.get("method") == "textDocument/publishDiagnostics":
                marked: list[dict[str, Any]] = message["params"]["diagnostics"]
                return marked

    def complete(self, name: str, line: int, character: int) -> list[str]:
        position = {"line": line, "character": character}
        where = {"textDocument": {"uri": self._uri(name)}, "position": position}
        return [item["label"] for item in self.ask("textDocument/completion", where)["items"]]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        while True:
            message = self._read()
            if message.get("id") == self._number and "method" not in message:
                return message["result"]

    def _uri(self, name: str) -> str:
        return (self._folder / name).as_uri()

    def _send(self, message: dict[str, Any]) -> None:
        content = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(content) + content)
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        """The next message; a question of the server's gets an empty answer."""
        assert self._process.stdout is not None
        length = 0
        while (line := self._process.stdout.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        assert length, "the language server has ended"
        message: dict[str, Any] = json.loads(self._process.stdout.read(length))
        if "id" in message and "method" in message:
            answer = [None] if message["method"] == "workspace/configuration" else None
            self._send({"id": message["id"], "result": answer})
        return message


@pytest.fixture
def editor(tmp_path: Path) -> Iterator[Editor]:
    if not _SERVER.exists():
        missing("the YAML language server is not installed: `make yaml-language-server`")
    yard = Path(sys.executable).with_name("yard")
    schema = subprocess.run([yard, "schema", "job"], capture_output=True, check=True).stdout
    (tmp_path / "job.schema.json").write_bytes(schema)
    editor = Editor(tmp_path)
    yield editor
    editor.close()


def test_an_example_is_whole_and_a_misspelt_key_is_marked(editor: Editor) -> None:
    text = _FIRST_LINE + (REPOSITORY / "examples/digits/job.yml").read_text()
    assert editor.open("job.yml", text) == []
    lines = text.splitlines()
    number = next(number for number, line in enumerate(lines) if line.startswith("distribution"))
    wrong = text.replace("distribution:", "distributon:")
    (marked,) = editor.open("wrong.yml", wrong)
    assert "distributon" in marked["message"] and marked["range"]["start"]["line"] == number


def test_distribution_is_completed(editor: Editor) -> None:
    text = f"{_FIRST_LINE}command: python train.py\ndistribution:\n  \n"
    editor.open("job.yml", text)
    keys = editor.complete("job.yml", 3, 2)
    assert {"type", "process_count_per_instance", "communication_backend"} <= set(keys)
    editor.open("type.yml", text.replace("  \n", "  type: \n"))
    assert {"pytorch", "mpi", "tensorflow"} <= set(editor.complete("type.yml", 3, 8))
