from __future__ import annotations

from pathlib import Path

import pytest

from torchyard.base.errors import InvalidInput
from torchyard.jobs.admission import machine


def test_limits_are_read_in_their_counting_units(tmp_path: Path) -> None:
    assert machine.read(tmp_path) == {}
    (tmp_path / "machine.yml").write_text("nodes: 4\ncores: 16\nmemory_gib: 2\ngpus: 1\n")
    assert machine.read(tmp_path) == {"nodes": 4, "cores": 16, "memory_mb": 2048, "gpus": 1}
    (tmp_path / "machine.yml").write_text("")
    assert machine.read(tmp_path) == {}


@pytest.mark.parametrize(
    "text, says, hint",
    [
        ("node: 4", "unknown key `node`", "did you mean `nodes`?"),
        ("nodes: 0", "1 or more, not `0`", "for example `nodes: 4`"),
        ("nodes: true", "1 or more, not `True`", "for example"),
        ("cores: many", "not `many`", "for example `cores: 4`"),
        ("- nodes", "not a mapping", "write `nodes: 4`"),
        ("nodes: [", "is not valid YAML", "write `nodes: 4`"),
    ],
)
def test_an_invalid_file_is_refused(tmp_path: Path, text: str, says: str, hint: str) -> None:
    (tmp_path / "machine.yml").write_text(text)
    with pytest.raises(InvalidInput, match=says) as refused:
        machine.read(tmp_path)
    assert hint in refused.value.hint
