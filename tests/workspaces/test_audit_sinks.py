"""Copies of audit lines arrive where they were sent, and wait while nobody listens."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

import kept_port
from eventually import eventually
from torchyard.base.clock import FakeClock
from torchyard.base.errors import InvalidInput
from torchyard.shared import audit_chain
from torchyard.workspaces import audit, audit_sinks


class Moments:
    """Seconds that a test moves."""

    s = 0.0

    def __call__(self) -> float:
        return self.s


def _opened_for_writing(pipe: Path) -> int | None:
    """A descriptor; None while nobody reads."""
    with suppress(OSError):
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    return None


def _audit(home: Path, sink: str) -> audit.Audit:
    return audit.Audit(home, FakeClock(), audit_sinks.sink_of(sink))


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


def test_lines_reach_a_syslog_server_by_udp(tmp_path: Path) -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as log:
        log.bind(("127.0.0.1", 0))
        log.settimeout(60)
        lines = _audit(tmp_path, f"udp://127.0.0.1:{log.getsockname()[1]}")
        lines.write({"user": "dan", "path": "/one"})
        message = log.recv(8192)
        assert message.startswith(b"<85>1 2026-01-01T00:00:00.000000Z ")
        assert json.loads(message[message.index(b"{") :])["path"] == "/one"
        lines.close()


def test_lines_reach_a_syslog_server_by_tcp_also_after_it_was_restarted(tmp_path: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0), reuse_port=True)
    port = listener.getsockname()[1]
    moments = Moments()
    kept_port.keep(port, moments)
    sink = audit_sinks.Sink(audit_sinks._Tcp(("127.0.0.1", port)), "tcp", moments)
    lines = audit.Audit(tmp_path, FakeClock(), sink)
    lines.write({"path": "/one"})
    first, _ = listener.accept()
    count, _, message = first.recv(8192).partition(b" ")
    assert int(count) == len(message) and b'"path": "/one"' in message
    first.close()
    listener.close()
    lines.write({"path": "/two"})
    lines.write({"path": "/three"})
    assert sink.waiting == 2
    again = socket.create_server(("127.0.0.1", port), reuse_port=True)
    moments.s += 10
    lines.write({"path": "/four"})
    second, _ = again.accept()
    received = second.recv(65536)
    assert [word in received for word in (b"/one", b"/two", b"/three", b"/four")] == [
        False, True, True, True
    ]  # fmt: skip
    lines.close()
    second.close()
    again.close()


def test_a_reader_of_a_pipe_keeps_a_copy_that_verifies(tmp_path: Path) -> None:
    pipe, copy = tmp_path / "pipe", tmp_path / "copy"
    os.mkfifo(pipe)
    lines = audit.Audit(tmp_path, FakeClock(), audit_sinks.Sink(audit_sinks._Pipe(pipe), "pipe"))
    reader = threading.Thread(target=lambda: copy.write_bytes(pipe.read_bytes()))
    reader.start()
    held_open = eventually(lambda: _opened_for_writing(pipe), "the reader to open the pipe")
    for number in range(100):
        lines.write({"path": f"/{number}"})
    lines.close()
    assert held_open is not None
    os.close(held_open)
    reader.join(60)
    compared = audit_chain.compare([_chain(tmp_path)], copy)
    assert (compared.lines, compared.changed, compared.uncopied) == (100, (), 0)


def test_a_sink_that_nobody_reads_fails_no_request(tmp_path: Path) -> None:
    lines = _audit(tmp_path, f"syslog:{tmp_path / 'nothing'}")
    for number in range(200):
        lines.write({"path": f"/{number}"})
    assert lines.sink is not None and lines.sink.waiting == 200
    assert (lines.written, lines.failed, _chain(tmp_path).lines) == (200, 0, 200)
    lines.close()


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_a_name_that_is_not_resolved_holds_up_nobody(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, has_answered = threading.Event(), list[bool]()

    def getaddrinfo(*_: object, **__: object) -> list[object]:
        has_answered.append(answered.wait(60))
        return []

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(audit_sinks, "LIMIT_S", 0.1)
    lines = _audit(tmp_path, f"{kind}://log.example:514")
    lines.write({"user": "dan", "path": "/one"})
    assert not has_answered, "the line waited for the name"
    answered.set()
    assert _chain(tmp_path).lines == 1


@pytest.mark.parametrize(
    "text",
    ["file:/tmp/x", "syslog:", "udp://host", "tcp://:5", "udp://h:99999", "nonsense", "pipe:x"],
)
def test_a_sink_of_no_known_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        audit_sinks.sink_of(text)
    assert "sink" in refused.value.message and "syslog:/dev/log" in refused.value.hint


def test_a_file_is_no_pipe(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="is not a pipe"):
        audit_sinks.sink_of(f"pipe:{tmp_path / 'file'}")
    with pytest.raises(InvalidInput, match="No such file"):
        audit_sinks.sink_of(f"pipe:{tmp_path / 'nothing'}")


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
    wanted: list[int] = []
    for _ in range(3):
        writer = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
        wanted.append(_lines(tmp_path) + 20)
        eventually(lambda: _lines(tmp_path) >= wanted[-1], "20 more lines")
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
def rsyslog(tmp_path: Path) -> Iterator[tuple[Path, Path, int]]:
    """A real rsyslogd: its socket, its file, its TCP port."""
    program = shutil.which("rsyslogd") or "/usr/sbin/rsyslogd"
    if not os.path.exists(program):
        if os.environ.get("TORCHYARD_TEST_SERVICES") == "required":
            pytest.fail("rsyslogd is not installed: `apt-get install rsyslog`")
        pytest.skip("rsyslogd is not installed")
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    log, file = tmp_path / "log.sock", tmp_path / "messages"
    configuration = tmp_path / "rsyslog.conf"
    configuration.write_text(
        f'global(workDirectory="{tmp_path}" maxMessageSize="16k")\n'
        f'module(load="imuxsock" SysSock.Use="off")\ninput(type="imuxsock" Socket="{log}")\n'
        f'module(load="imtcp")\ninput(type="imtcp" port="{port}")\n'
        f'authpriv.* action(type="omfile" file="{file}")\n'
    )
    process = subprocess.Popen(
        [program, "-n", "-f", str(configuration), "-i", str(tmp_path / "pid")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    eventually(lambda: log.exists() and _listens(port), "rsyslogd to listen")
    yield log, file, port
    process.terminate()
    process.wait(60)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=60).close()
    except OSError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("way", ["local", "tcp"])
def test_rsyslog_keeps_a_copy_that_shows_a_rewritten_log(
    tmp_path: Path, rsyslog: tuple[Path, Path, int], way: str
) -> None:
    log, file, port = rsyslog
    lines = _audit(tmp_path, f"syslog:{log}" if way == "local" else f"tcp://127.0.0.1:{port}")
    for number in range(50):
        lines.write({"user": "dän", "path": f"/{number}"})
    lines.close()
    eventually(lambda: file.exists() and file.read_bytes().count(b"\n") == 50, "50 lines")
    chain = _chain(tmp_path)
    assert chain.lines == 50
    whole = audit_chain.compare([chain], file)
    assert (whole.lines, whole.changed, whole.uncopied) == (50, (), 0)
    kept = next((tmp_path / "audit").iterdir())
    kept.write_bytes(b"".join(kept.read_bytes().splitlines(keepends=True)[:-5]))
    cut = _chain(tmp_path)
    assert cut.broken is None
    assert len(audit_chain.compare([cut], file).changed) == 5
