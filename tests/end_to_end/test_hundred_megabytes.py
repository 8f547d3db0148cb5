"""A hundred megabytes of output from eight ranks: nothing lost, nothing twice."""

from __future__ import annotations

import hashlib
import json
import re
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from end_to_end.yard_under_test import REPOSITORY, Yard, wait_until

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

RANKS = 8
BLOCKS = 25
PATHS = [f"user_logs/std_log_process_{rank}.txt" for rank in range(RANKS)]

# What a rank writes follows from its number, so the test can say every byte of it.
WRITE = r"""
import os, time

def block(rank, number):
    head = b"\nrank %d line %d.%%d " % (rank, number)
    broken = b"".join(head % line + b"\xff\xfe" * 20 for line in range(40))
    lines = b"".join(head % line + b"x" * 950 for line in range(40, 280))
    long = head % 280 + b"y" * (1 << 20) if number % 4 == 0 else b""
    return broken + lines + long

if __name__ == "__main__":
    for number in range(25):
        # Until the test has broken a stream off, however long that takes.
        while number == 5 and not os.path.exists(os.environ["GO_ON"]):
            time.sleep(0.1)
        rest = block(int(os.environ["RANK"]), number)
        while rest:
            rest = rest[os.write(1, rest):]
        time.sleep(0.2)
"""


def expected(rank: int) -> bytes:
    scope: dict[str, Any] = {"__name__": "write"}
    exec(WRITE, scope)
    return b"".join(scope["block"](rank, number) for number in range(BLOCKS))


class Follower:
    """Reads the job's stream like a client that is cut off and comes back."""

    def __init__(self, yard: Yard, job: str) -> None:
        self.yard, self.job = yard, job
        self.after = 0
        self.offsets: dict[str, int] = {}
        self.logs = {path: bytearray() for path in PATHS}
        self.ended = False

    def read(self, at_most_bytes: float) -> None:
        """Follow until the job ends or so much has come, then hang up."""
        offsets = quote(json.dumps(self.offsets))
        path = f"jobs/{self.job}/stream?after={self.after}&offsets={offsets}"
        taken = 0
        with self.yard.open(path) as stream:
            while taken < at_most_bytes and not self.ended:
                frame = json.loads(stream.readline())
                self.after = max(self.after, frame.get("seq", 0))
                self.ended = frame["kind"] == "end"
                if "size" in frame:
                    content = stream.read(frame["size"])
                    taken += len(content)
                    self._keep(frame, content)

    def _keep(self, frame: dict[str, Any], content: bytes) -> None:
        key = "build"
        if frame["kind"] == "log":
            key = f"{frame['attempt']}/{frame['path']}"
            log = self.logs[frame["path"]]
            assert frame["offset"] == len(log), "a gap, or bytes that came before"
            log += content
        self.offsets[key] = frame["offset"] + frame["size"]


def test_every_byte_arrives_once(yard: Yard, write_job: Callable[..., str], tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    job = {
        "name": "loud",
        "command": "python write.py",
        "environment_variables": {"GO_ON": str(go_on)},
        "distribution": {"type": "pytorch", "process_count_per_instance": 4},
        "resources": {"instance_count": 2},
    }
    yard("job", "create", "-f", write_job(job, write=WRITE))

    broken_off, complete = tmp_path / "broken_off", tmp_path / "whole"
    with broken_off.open("wb") as out, yard.start("job", "stream", "-n", "loud", stdout=out) as run:
        wait_until(lambda: broken_off.stat().st_size > 1_000_000, 60, "the log comes in")
        run.send_signal(signal.SIGINT)
    assert yard.job("loud")["status"] == "Running", "the stream ended the job"
    go_on.touch()

    with (
        complete.open("wb") as out,
        yard.start("job", "stream", "-n", "loud", stdout=out, cwd=REPOSITORY) as run,
    ):
        follower = Follower(yard, "loud")
        while not follower.ended:
            follower.read(at_most_bytes=20_000_000)
        assert run.wait(timeout=120) == 0

    yard.completed("loud")
    digests = {path: hashlib.sha256(expected(rank)) for rank, path in enumerate(PATHS)}
    for path in PATHS:
        digest = digests[path].hexdigest()
        assert hashlib.sha256(yard.read(f"jobs/loud/files/{path}")).hexdigest() == digest
        assert hashlib.sha256(follower.logs[path]).hexdigest() == digest

    lines = Counter(re.findall(rb"rank \d line \d+\.\d+ ", complete.read_bytes()))
    assert set(lines.values()) == {1}, "a line was printed twice"
    assert sum(lines.values()) == RANKS * (BLOCKS * 280 + len(range(0, BLOCKS, 4)))
