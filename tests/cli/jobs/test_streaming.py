"""Following a job over the real command line: every byte once, whatever happens on the way."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from cli.conftest import Yard
from cli.fake_server import FakeJob, FakeServer, Part, job_body
from eventually import eventually

RANKS = 8


def log(path: str, content: bytes, attempt: int = 1) -> Part:
    return Part({"kind": "log", "attempt": attempt, "path": f"user_logs/{path}"}, content)


def add(server: FakeServer, name: str, parts: Sequence[Part], **body: object) -> FakeJob:
    job = FakeJob(job_body(name, **body), list(parts))  # type: ignore[arg-type]
    job.may_end.set()
    server.state.jobs[name] = job
    return job


def rank_text(rank: int) -> bytes:
    """Lines of many lengths with bytes that are not text, and one of 1 MB."""
    chance = random.Random(rank)
    every = bytes(byte for byte in range(256) if byte not in b"\r\n")
    lines = [bytes(chance.choices(every, k=chance.randrange(200))) for _ in range(300)]
    lines.insert(150, b"\xff\xfe" * 500_000)
    return b"\n".join(lines) + b"\n"


def interleaved(texts: Sequence[bytes]) -> list[Part]:
    """Chunks that begin and end anywhere, ranks mixed."""
    chance = random.Random(99)
    left = {f"std_log_process_{rank:02d}.txt": text for rank, text in enumerate(texts)}
    parts = []
    while left:
        path = chance.choice(list(left))
        size = chance.choice([1, 100, 5_000, 200_000])
        parts.append(log(path, left[path][:size]))
        left[path] = left[path][size:]
        if not left[path]:
            del left[path]
    return parts


def test_one_rank_is_printed_as_it_is(server: FakeServer, yard: Yard) -> None:
    text = b"epoch 1\r50%\r100%\n\xff\xfe no line feed at the end"
    add(server, "one", [log("std_log.txt", text[:7]), log("std_log.txt", text[7:])])
    answer = yard("job", "stream", "-n", "one")
    assert answer.code == 0
    assert answer.out == text
    assert answer.err.startswith("RunId: one\n")
    assert "Execution Summary\n=================\nRunId:" in answer.err
    assert "loss  0.25" in answer.err and "Model: digits:1" in answer.err


def test_lines_of_many_ranks_stay_whole(server: FakeServer, yard: Yard) -> None:
    texts = [rank_text(rank) for rank in range(RANKS)]
    add(server, "many", interleaved(texts))
    answer = yard("job", "stream", "many")
    got: dict[bytes, list[bytes]] = {}
    for line in answer.out.split(b"\n")[:-1]:
        got.setdefault(line[:5], []).append(line[5:])
    assert {prefix: b"\n".join(lines) + b"\n" for prefix, lines in got.items()} == {
        b"[%2d] " % rank: text for rank, text in enumerate(texts)
    }


def test_one_rank_of_many_is_printed_as_it_is(server: FakeServer, yard: Yard) -> None:
    texts = [rank_text(rank) for rank in range(RANKS)]
    add(server, "many", interleaved(texts))
    assert yard("job", "stream", "many", "--rank", 3).out == texts[3]
    answer = yard("job", "stream", "many", "--rank", 9)
    assert answer.out == b"" and "Rank 9 wrote nothing; ranks that did: 0, 1" in answer.err


def test_a_last_line_without_line_feed_is_not_glued(server: FakeServer, yard: Yard) -> None:
    add(server, "two", [log("std_log_process_0.txt", b"a"), log("std_log_process_1.txt", b"b")])
    assert yard("job", "stream", "two").out == b"[0] a\n[1] b\n"


def test_broken_connections_cost_nothing(server: FakeServer, yard: Yard) -> None:
    texts = [rank_text(rank) for rank in range(3)]
    events = [
        Part({"kind": "notice", "seq": seq, "at": "x", "message": f"notice {seq}"})
        for seq in range(1, 30)
    ]
    parts = interleaved(texts)
    for position, event in enumerate(events):
        parts.insert(position * len(parts) // len(events), event)
    job = add(server, "broken", parts)
    chance = random.Random(1)
    job.cuts = [chance.choice([10, 1000, 100_000, 400_000]) for _ in range(6)]
    answer = yard("job", "stream", "broken", "--rank", 2)
    assert answer.code == 0 and not job.cuts
    assert answer.out == texts[2]
    assert [line for line in answer.err.splitlines() if line.startswith("Notice")] == [
        f"Notice: notice {seq}" for seq in range(1, 30)
    ]


def test_a_server_that_goes_away_is_waited_for(server: FakeServer, yard: Yard) -> None:
    text = rank_text(0)
    job = add(server, "away", [log("std_log.txt", text)])
    job.cuts = [1000, 300_000]
    job.may_end.clear()

    printed = []
    with _spawn("job", "stream", "away") as process:
        assert process.stdout is not None and process.stderr is not None
        out = process.stdout
        reader = threading.Thread(target=lambda: printed.append(out.read()))
        reader.start()
        eventually(lambda: len(job.cuts) < 2, "the stream to be cut")
        server.stop()
        err = b""
        while b"The server is unreachable" not in err:
            line = process.stderr.readline()
            assert line, err
            err += line
        server.start()
        job.may_end.set()
        err += process.stderr.read()
        reader.join()
    assert process.returncode == 0 and printed == [text]
    assert err.count(b"The server is unreachable") == 1


@pytest.mark.parametrize(
    ("status", "exit_code", "code"),
    [
        ("Completed", 0, 0),
        ("Failed", 7, 7),
        ("Failed", None, 1),
        ("Failed", 0, 1),
        ("Failed", -9, 137),
        ("Canceled", None, 1),
    ],
)
def test_exit_code_is_the_jobs(
    server: FakeServer, yard: Yard, status: str, exit_code: int | None, code: int
) -> None:
    error = {"code": "failed", "message": "rank 1 exited with 7", "hint": "see its log"}
    add(
        server, "ended", [], status=status, exit_code=exit_code,
        error=error if status == "Failed" else None,
    )  # fmt: skip
    answer = yard("job", "stream", "ended")
    assert answer.code == code
    assert ("error: rank 1 exited with 7\nhint: see its log" in answer.err) == (status == "Failed")


def test_stages_and_waiting_go_to_stderr(server: FakeServer, yard: Yard) -> None:
    at = "2026-01-01T10:00:0{}.000000Z"
    preparing = {"kind": "stage", "stage": "Preparing"}
    add(
        server,
        "staged",
        [
            Part({"seq": 1, "at": at.format(1), "state": "start", **preparing}),
            Part({"seq": 2, "at": at.format(4), "state": "end", **preparing}),
            Part({"kind": "waiting", "message": "needs 2 nodes"}),
            Part({"kind": "ping"}),
            Part({"kind": "waiting", "message": "needs 2 nodes"}),
        ],
    )  # fmt: skip
    answer = yard("job", "stream", "staged")
    assert answer.out == b""
    assert "Preparing…\nPreparing took 3.0 s\nQueued: needs 2 nodes\n\nExecution" in answer.err


def test_unknown_job(server: FakeServer, yard: Yard) -> None:
    answer = yard("job", "stream", "nope")
    assert answer.code == 2
    assert answer.err.endswith(
        "error: job `nope` does not exist\nhint: list jobs with `yard job list`\n"
    )


def _spawn(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "torchyard.cli.main", *arguments]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(os.environ),
        # A shell that runs the tests in the background ignores it, which children inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        **options,
    )


def test_interrupt_leaves_the_job(server: FakeServer, yard: Yard) -> None:
    job = add(server, "goes-on", [log("std_log.txt", b"first line\n")])
    job.may_end.clear()
    with _spawn("job", "stream", "goes-on") as process:
        assert process.stdout is not None and process.stdout.readline() == b"first line\n"
        process.send_signal(2)
        _, err = process.communicate(timeout=60)
    job.may_end.set()
    assert process.returncode == 130
    assert b"resume with `yard job stream goes-on`" in err
    assert b"Traceback" not in err


def test_a_reader_that_goes_away_is_no_error(server: FakeServer, yard: Yard) -> None:
    add(server, "long", [log("std_log.txt", b"x" * 99 + b"\n")] * 20_000)
    with _spawn("job", "stream", "long") as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
        process.wait(60)
    assert process.returncode == 141
    assert b"rror" not in err


@pytest.mark.parametrize("together", [True, False])
def test_output_without_a_last_newline_is_not_glued_to_what_follows(together: bool) -> None:
    """In one file or pipe as at a terminal; two of them are left as they are."""
    code = (
        "import sys\n"
        "from torchyard.cli.jobs import streaming\n"
        "from torchyard.client.printing import Printer, bytes_of\n"
        "end_line = streaming._end_line if streaming._share_output() else None\n"
        "say = lambda text: print(text, file=sys.stderr, flush=True)\n"
        "printer = Printer(bytes_of(sys.stdout), say, None, end_line)\n"
        "printer._write(b'no newline')\n"
        "printer.line('Running took 1 s')\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if together else subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
        check=True,
    )
    expected = b"no newline\nRunning took 1 s\n" if together else b"no newline"
    assert process.stdout == expected
