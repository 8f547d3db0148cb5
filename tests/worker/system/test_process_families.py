"""Which processes belong to a node."""

from __future__ import annotations

import os
import subprocess

from torchyard.shared.processes import start_time
from torchyard.worker.system.processes import MARK_VARIABLE, family

NOBODY = -1


def test_a_marked_process_is_found_unless_it_started_before() -> None:
    mark = f"families-{os.getpid()}:0"
    with subprocess.Popen(["sleep", "60"], env={**os.environ, MARK_VARIABLE: mark}) as child:
        try:
            started = start_time(child.pid)
            assert [process.pid for process in family(NOBODY, mark)] == [child.pid]
            assert [process.pid for process in family(NOBODY, mark, started)] == [child.pid]
            assert family(NOBODY, mark, started + 1) == []
            # A descendant is one whenever it started.
            descendants = [process.pid for process in family(os.getpid(), mark, started + 1)]
            assert child.pid in descendants
        finally:
            child.kill()
