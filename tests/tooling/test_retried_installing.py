"""Installing steps are tried again where a later try may pass."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import retry

DOWNLOAD = (
    "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=60).read().decode())"
)


class Registry(http.server.BaseHTTPRequestHandler):
    """Answers 503 twice, then gives the file."""

    requests = 0

    def do_GET(self) -> None:
        type(self).requests += 1
        self.send_response(503 if self.requests <= 2 else 200)
        self.end_headers()
        self.wfile.write(b"the package")

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[tuple[type[Registry], str]]:
    handler = type("FreshRegistry", (Registry,), {})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield handler, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_a_registry_that_answers_503_twice_fails_nothing(
    registry: tuple[type[Registry], str], capfd: pytest.CaptureFixture[str]
) -> None:
    handler, url = registry
    pauses: list[float] = []
    assert retry.run([sys.executable, "-c", DOWNLOAD, url], sleep=pauses.append) == 0
    output, errors = capfd.readouterr()
    assert (handler.requests, pauses) == (3, [10.0, 30.0])
    assert output == "the package\n"
    # What each try said is there.
    assert errors.count("HTTP Error 503") == 2
    assert errors.count("trying again in") == 2


def failing(folder: Path, message: str, code: int = 1) -> list[str]:
    """A command that counts its tries in a file, says something and fails."""
    script = f"import sys; open({str(folder / 'tries')!r}, 'a').write('x'); "
    return [sys.executable, "-c", f"{script}print({message!r}, file=sys.stderr); sys.exit({code})"]


@pytest.mark.parametrize(
    ("message", "code", "tries"),
    [
        ("error: Failed to fetch: `torch`: 503 Service Unavailable", 2, 3),
        ("E: Failed to fetch: Temporary failure resolving", 100, 3),
        ("npm error code ECONNRESET", 1, 3),
        ("ERROR: No matching distribution found for uv==0.13.8", 1, 3),
        ("error: No solution found when resolving dependencies:", 1, 1),
        ("npm error code ETARGET", 1, 1),
        ("npm error code EUSAGE", 1, 1),
        ("interrupted", 130, 1),
    ],
)
def test_only_failures_that_may_pass_are_tried_again(
    message: str, code: int, tries: int, tmp_path: Path
) -> None:
    assert retry.run(failing(tmp_path, message, code), sleep=lambda _: None) == code
    assert len((tmp_path / "tries").read_text()) == tries


def test_the_command_line_passes_the_exit_code_on() -> None:
    words = [sys.executable, retry.__file__, sys.executable, "-c", "import sys; sys.exit(130)"]
    assert subprocess.run(words, timeout=60).returncode == 130


def test_a_program_that_is_not_there_is_said_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    assert retry.run(["no-such-program-here"], sleep=lambda _: pytest.fail("it paused")) == 127
    assert "cannot run `no-such-program-here`" in capfd.readouterr().err
