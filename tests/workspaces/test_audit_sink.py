"""Copies of audit lines arrive where they were sent, and wait while nobody listens."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from eventually import eventually
from torchyard.base import audit_chain
from torchyard.base.clock import FakeClock
from torchyard.base.errors import InvalidInput
from torchyard.workspaces import audit, audit_sink


class Moments:
    """Seconds that a test moves."""

    s = 0.0

    def __call__(self) -> float:
        return self.s


def _audit(home: Path, sink: str) -> audit.Audit:
    return audit.Audit(home, FakeClock(), audit_sink.sink_of(sink))


def _chain(home: Path) -> audit_chain.Chain:
    (chain,) = audit_chain.verify(home / "audit")
    return chain


def test_lines_reach_the_local_syslog(tmp_path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as log:
        log.bind(str(tmp_path / "log"))
        log.settimeout(60)
        lines = _audit(tmp_path, f"syslog:{tmp_path / 'log'}")
        lines.write({"user": "dan", "path": "/one"})
        head, _, text = log.recv(8192).partition(b": ")
        assert head == f"<85>torchyard-audit[{os.getpid()}]".encode()
        assert json.loads(text)["path"] == "/one"
        lines.close()


def test_lines_that_waited_are_sent_in_order_when_the_syslog_is_back(tmp_path: Path) -> None:
    moments, path = Moments(), tmp_path / "log"
    lines = audit.Audit(tmp_path, FakeClock(), audit_sink.Sink(str(path), moments))
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as log:
        log.bind(str(path))
        log.settimeout(60)
        lines.write({"path": "/one"})
        assert b'"path": "/one"' in log.recv(8192)
        # A process that another thread starts now may hold the socket until it runs its program.
        log.shutdown(socket.SHUT_RDWR)
    path.unlink()
    lines.write({"path": "/two"})
    lines.write({"path": "/three"})
    assert lines.sink is not None and lines.sink.waiting == 2
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as log:
        log.bind(str(path))
        log.settimeout(60)
        lines.write({"path": "/four"})
        assert lines.sink.waiting == 3, "it was tried again at once"
        moments.s += 10
        lines.write({"path": "/five"})
        received = [log.recv(8192) for _ in range(4)]
        assert [json.loads(line.partition(b": ")[2])["path"] for line in received] == [
            "/two", "/three", "/four", "/five"
        ]  # fmt: skip
    lines.close()


def test_a_sink_that_nobody_reads_fails_no_request(tmp_path: Path) -> None:
    lines = _audit(tmp_path, f"syslog:{tmp_path / 'nothing'}")
    for number in range(200):
        lines.write({"path": f"/{number}"})
    assert lines.sink is not None and lines.sink.waiting == 200
    assert (lines.written, lines.failed, _chain(tmp_path).lines) == (200, 0, 200)
    lines.close()


@pytest.mark.parametrize(
    "text",
    ["file:/tmp/x", "syslog:", "syslog:log", "udp://host:514", "nonsense"],
)
def test_a_sink_of_no_known_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        audit_sink.sink_of(text)
    assert "sink" in refused.value.message and "syslog:/dev/log" in refused.value.hint


def test_several_servers_of_one_machine_write_one_chain(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from torchyard.base.clock import SystemClock\n"
        "from torchyard.workspaces.audit import Audit\n"
        "lines = Audit(Path(sys.argv[1]), SystemClock())\n"
        "for number in range(200): lines.write({'path': f'/{sys.argv[2]}/{number}'})\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path), str(number)])
        for number in range(3)
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    chain = _chain(tmp_path)
    assert (chain.broken, chain.lines, chain.last.seq) == (None, 600, 600)


def test_a_killed_server_leaves_a_chain_that_goes_on(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from torchyard.base.clock import SystemClock\n"
        "from torchyard.workspaces.audit import Audit\n"
        "lines = Audit(Path(sys.argv[1]), SystemClock())\n"
        "number = 0\n"
        "while True:\n"
        "    lines.write({'path': f'/{number}'}); number += 1\n"
    )
    numbers: list[int] = []
    for _ in range(3):
        writer = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
        numbers.append(_lines(tmp_path) + 20)
        eventually(lambda: _lines(tmp_path) >= numbers[-1], "20 more lines")
        writer.kill()
        writer.wait()
    chain = _chain(tmp_path)
    assert chain.broken is None and chain.lines >= 60


def test_a_line_after_half_a_line_begins_again(tmp_path: Path) -> None:
    lines = audit.Audit(tmp_path, FakeClock())
    lines.write({"path": "/one"})
    file = next((tmp_path / "audit").iterdir())
    with open(file, "ab") as opened:
        opened.write(b'{"at": "2026-')
    lines.write({"path": "/two"})
    lines.close()
    chain = _chain(tmp_path)
    assert (chain.broken, chain.lines, chain.incomplete) == (None, 2, 1)


def test_the_chain_goes_on_when_the_clock_is_set_back_over_midnight(tmp_path: Path) -> None:
    clock = FakeClock()
    lines = audit.Audit(tmp_path, clock)
    for days in (0, 1, -1, -1):
        clock.set_by(days * 86_400)
        lines.write({"path": "/one"})
    lines.close()
    again = audit.Audit(tmp_path, clock)
    again.write({"path": "/two"})
    again.close()
    chain = _chain(tmp_path)
    assert (chain.broken, chain.lines, chain.last.seq) == (None, 5, 5)


def _lines(home: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in home.glob("audit/*.jsonl"))


@pytest.fixture
def rsyslog(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A real rsyslogd: its socket, its file."""
    program = shutil.which("rsyslogd") or "/usr/sbin/rsyslogd"
    if not os.path.exists(program):
        if os.environ.get("TORCHYARD_TEST_SERVICES") == "required":
            pytest.fail("rsyslogd is not installed: `apt-get install rsyslog`")
        pytest.skip("rsyslogd is not installed")
    log, file = tmp_path / "log.sock", tmp_path / "messages"
    configuration = tmp_path / "rsyslog.conf"
    configuration.write_text(
        f'global(workDirectory="{tmp_path}" maxMessageSize="16k")\n'
        f'module(load="imuxsock" SysSock.Use="off")\ninput(type="imuxsock" Socket="{log}")\n'
        f'authpriv.* action(type="omfile" file="{file}")\n'
    )
    process = subprocess.Popen(
        [program, "-n", "-f", str(configuration), "-i", str(tmp_path / "pid")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    eventually(log.exists, "rsyslogd to listen")
    yield log, file
    process.terminate()
    process.wait(60)


@pytest.mark.slow
def test_rsyslog_keeps_a_copy_that_shows_a_rewritten_log(
    tmp_path: Path, rsyslog: tuple[Path, Path]
) -> None:
    log, file = rsyslog
    lines = _audit(tmp_path, f"syslog:{log}")
    for number in range(50):
        lines.write({"user": "dän", "path": f"/{number}"})
    lines.close()
    eventually(lambda: file.exists() and file.read_bytes().count(b"\n") == 50, "50 lines")
    chain = _chain(tmp_path)
    assert chain.lines == 50
    comparison = audit_chain.compare([chain], file)
    assert (comparison.lines, comparison.changed, comparison.uncopied) == (50, (), 0)
    log_file = next((tmp_path / "audit").iterdir())
    log_file.write_bytes(b"".join(log_file.read_bytes().splitlines(keepends=True)[:-5]))
    cut = _chain(tmp_path)
    assert cut.broken is None
    assert len(audit_chain.compare([cut], file).changed) == 5
