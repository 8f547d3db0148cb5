"""The server is told from where a run goes on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from eventually import eventually
from torchyard.worker.node.resumption import Resumption


def test_the_note_is_told_once(tmp_path: Path) -> None:
    received: list[Any] = []
    note = tmp_path / "note"
    resumption = Resumption("job", note, received.extend, every_s=0.02)
    resumption.start()
    time.sleep(0.1)
    assert received == []
    draft = tmp_path / "draft"  # as torchyard.train writes it
    draft.write_text('{"step": 3}')
    draft.rename(note)
    eventually(lambda: received, "the step to be noted")
    resumption.close()
    record = {"kind": "tag", "run": "job", "key": "torchyard.resumed_from", "value": '{"step": 3}'}
    assert received == [record]


def test_a_job_that_ends_at_once_is_looked_at_too(tmp_path: Path) -> None:
    received: list[Any] = []
    note = tmp_path / "note"
    resumption = Resumption("job", note, received.extend, every_s=60)
    resumption.start()
    note.write_text("x" * 5_000_000)
    resumption.close()
    assert [len(record["value"]) for record in received] == [1_000]


def test_a_full_disk_fails_nothing(tmp_path: Path, capsys: Any) -> None:
    def refuse(records: list[dict[str, Any]]) -> None:
        raise OSError(28, "No space left on device")

    note = tmp_path / "note"
    note.write_text("{}")
    resumption = Resumption("job", note, refuse, every_s=0.01)
    resumption.start()
    time.sleep(0.05)
    resumption.close()
    assert "No space left" in capsys.readouterr().err
