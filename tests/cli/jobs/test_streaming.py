"""Following a job over the real command line: every byte once, whatever happens on the way."""

from __future__ import annotations

import io
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
from cli.relay import Relay
from cli.served_workspace import PlayedJob, ServedWorkspace
from eventually import eventually
from torchyard.cli.jobs import streaming
from torchyard.client.printing import Printer
from torchyard.client.streams import Frame

RANKS = 8


Piece = tuple[str, bytes]
"""The name of a rank's log, and bytes that come next in it."""


def printed(server: ServedWorkspace, name: str, pieces: Sequence[Piece]) -> PlayedJob:
    """A job that runs and has printed these."""
    job = server.start(name).run()
    for path, content in pieces:
        job.log(content, path)
    return job


def rank_text(rank: int) -> bytes:
    """Lines of many lengths with bytes that are not text, and one of 1 MB."""
    chance = random.Random(rank)
    every = bytes(byte for byte in range(256) if byte not in b"\r\n")
    lines = [bytes(chance.choices(every, k=chance.randrange(200))) for _ in range(300)]
    lines.insert(150, b"\xff\xfe" * 500_000)
    return b"\n".join(lines) + b"\n"


def interleaved(texts: Sequence[bytes]) -> list[Piece]:
    """Chunks that begin and end anywhere, ranks mixed."""
    chance = random.Random(99)
    left = {f"std_log_process_{rank:02d}.txt": text for rank, text in enumerate(texts)}
    pieces = []
    while left:
        path = chance.choice(list(left))
        size = chance.choice([1, 100, 5_000, 200_000])
        pieces.append((path, left[path][:size]))
        left[path] = left[path][size:]
        if not left[path]:
            del left[path]
    return pieces


def test_one_rank_is_printed_as_it_is(server: ServedWorkspace, yard: Yard) -> None:
    text = b"epoch 1\r50%\r100%\n\xff\xfe no line feed at the end"
    job = printed(server, "one", [("std_log.txt", text[:7]), ("std_log.txt", text[7:])])
    job.record(loss=0.25)
    job.write("outputs/m.pt", b"weights")
    job.complete()
    path = "azureml://jobs/one/outputs/artifacts/paths/outputs/m.pt"
    assert yard("model", "create", "-n", "digits", "-p", path).code == 0
    answer = yard("job", "stream", "-n", "one")
    assert answer.code == 0
    assert answer.out == text
    assert answer.err.startswith("RunId: one\n")
    assert "Execution Summary\n=================\nRunId:" in answer.err
    assert "loss  0.25" in answer.err and "Model: digits:1" in answer.err


def test_lines_of_many_ranks_stay_whole(server: ServedWorkspace, yard: Yard) -> None:
    texts = [rank_text(rank) for rank in range(RANKS)]
    printed(server, "many", interleaved(texts)).complete()
    answer = yard("job", "stream", "many")
    got: dict[bytes, list[bytes]] = {}
    for line in answer.out.split(b"\n")[:-1]:
        got.setdefault(line[:5], []).append(line[5:])
    assert {prefix: b"\n".join(lines) + b"\n" for prefix, lines in got.items()} == {
        b"[%2d] " % rank: text for rank, text in enumerate(texts)
    }


def test_one_rank_of_many_is_printed_as_it_is(server: ServedWorkspace, yard: Yard) -> None:
    texts = [rank_text(rank) for rank in range(RANKS)]
    printed(server, "many", interleaved(texts)).complete()
    assert yard("job", "stream", "many", "--rank", 3).out == texts[3]
    answer = yard("job", "stream", "many", "--rank", 9)
    assert answer.out == b"" and "Rank 9 wrote nothing; ranks that did: 0, 1" in answer.err


def test_a_last_line_without_line_feed_is_not_glued(server: ServedWorkspace, yard: Yard) -> None:
    pieces = [("std_log_process_0.txt", b"a"), ("std_log_process_1.txt", b"b")]
    printed(server, "two", pieces).complete()
    assert yard("job", "stream", "two").out == b"[0] a\n[1] b\n"


def test_broken_connections_cost_nothing(
    server: ServedWorkspace, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [rank_text(rank) for rank in range(3)]
    pieces = interleaved(texts)
    job = server.start("broken").run()
    for number, (path, content) in enumerate(pieces):
        job.log(content, path)
        if number < 29:
            job.notice(f"notice {number}")
    job.complete()
    chance = random.Random(1)
    relay = Relay(server.url, [chance.choice([10, 1000, 100_000, 400_000]) for _ in range(6)])
    monkeypatch.setenv("TORCHYARD_URL", relay.url)
    answer = yard("job", "stream", "broken", "--rank", 2)
    relay.stop()
    assert answer.code == 0 and not relay.cuts
    assert answer.out == texts[2]
    assert [line for line in answer.err.splitlines() if line.startswith("Notice")] == [
        f"Notice: notice {number}" for number in range(29)
    ]


def test_a_server_that_goes_away_is_waited_for(
    server: ServedWorkspace, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = rank_text(0)
    job = printed(server, "away", [("std_log.txt", text)])
    relay = Relay(server.url, [1000, 300_000])
    monkeypatch.setenv("TORCHYARD_URL", relay.url)
    output = []
    with _spawn("job", "stream", "away") as process:
        assert process.stdout is not None and process.stderr is not None
        out = process.stdout
        reader = threading.Thread(target=lambda: output.append(out.read()))
        reader.start()
        eventually(lambda: len(relay.cuts) < 2, "the stream to be cut")
        relay.stop()
        err = b""
        while b"The server is unreachable" not in err:
            line = process.stderr.readline()
            assert line, err
            err += line
        relay.start()
        job.complete()
        err += process.stderr.read()
        reader.join()
    relay.stop()
    assert process.returncode == 0 and output == [text]
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
def test_exit_code_is_the_jobs(status: str, exit_code: int | None, code: int) -> None:
    assert streaming.exit_code({"status": status, "exit_code": exit_code}) == code


def test_a_failed_job_says_why(server: ServedWorkspace, yard: Yard) -> None:
    server.start("ended").fail(7)
    answer = yard("job", "stream", "ended")
    assert answer.code == 7 and "\nerror: rank 0 exited with code 7\n" in answer.err


def test_stages_go_to_stderr(server: ServedWorkspace, yard: Yard) -> None:
    job = server.start("staged").run()
    server.advance(3)
    job.complete()
    answer = yard("job", "stream", "staged")
    assert answer.out == b""
    assert "Running…\nRunning took 3.0 s\n" in answer.err


def test_a_wait_is_said_once_and_a_stage_is_timed_where_the_server_did_not() -> None:
    at = "2026-01-01T10:00:0{}.000000Z"
    preparing, waiting = {"stage": "Preparing"}, {"message": "needs 2 nodes"}
    frames = [
        Frame("stage", {"seq": 1, "at": at.format(1), "state": "start", **preparing}),
        Frame("stage", {"seq": 2, "at": at.format(4), "state": "end", **preparing}),
        *(Frame(kind, waiting) for kind in ("waiting", "ping", "waiting")),
    ]
    said: list[str] = []
    printer = Printer(io.BytesIO(), said.append)
    for frame in frames:
        printer.frame(frame)
    assert said == ["Preparing…", "Preparing took 3.0 s", "Queued: needs 2 nodes"]


def test_unknown_job(server: ServedWorkspace, yard: Yard) -> None:
    answer = yard("job", "stream", "nope")
    assert answer.code == 2
    assert answer.err.endswith(
        f"error: job `nope` does not exist in workspace `{server.name}`\n"
        "hint: list jobs with `yard job list`\n"
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


def test_interrupt_leaves_the_job(server: ServedWorkspace, yard: Yard) -> None:
    printed(server, "goes-on", [("std_log.txt", b"first line\n")])
    with _spawn("job", "stream", "goes-on") as process:
        assert process.stdout is not None and process.stdout.readline() == b"first line\n"
        process.send_signal(2)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"resume with `yard job stream goes-on`" in err
    assert b"Traceback" not in err
    assert server.job("goes-on").status.value == "Running"


def test_a_reader_that_goes_away_is_no_error(server: ServedWorkspace, yard: Yard) -> None:
    printed(server, "long", [("std_log.txt", (b"x" * 99 + b"\n") * 20_000)]).complete()
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
