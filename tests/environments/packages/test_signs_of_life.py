"""A step of a build that prints nothing for long says that it still runs."""

from __future__ import annotations

import io
from pathlib import Path

from torchyard.environments.packages import machine_config
from torchyard.environments.packages.uv import Uv


class _Log(io.BytesIO):
    """Ends the program, which waits for a file, at the second sign of life."""

    def __init__(self, end: Path) -> None:
        super().__init__()
        self._end = end

    def flush(self) -> None:
        if self.getvalue().count(b" so far") >= 2:
            self._end.touch()


def test_a_silent_step_gives_signs_of_life(tmp_path: Path) -> None:
    log = _Log(tmp_path / "end")
    uv = Uv(machine_config.read({}), log, lambda: False, None, silence_s=0.0)
    waiting = "until [ -e end ]; do sleep 0.05; done; echo done >&2"
    outcome = uv.run_program(["/bin/sh", "-c", waiting], tmp_path, "compile modules")
    lines = log.getvalue().decode().splitlines()
    assert lines[0] == "$ compile modules" and lines[-1] == "done"
    assert all(line.startswith("… compile modules: ") for line in lines[1:-1]) and len(lines) > 3
    assert outcome.code == 0 and outcome.words == "done"
