"""A shared server with a runner, installed as the guide says: three kinds of Unix users.

Owns: the installation that only root can change, the server as a user of its own, people's tokens.
Leaves: what people submit to the tests.
Always: nothing of it stays, as in runner_site.py.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uv

from runner.runner_site import RunnerSite, python_for_all

ROOT = Path(__file__).resolve().parents[2]
ENDED = ("Completed", "Failed", "Canceled")
_LIMIT_S = 90.0


class SharedSite(RunnerSite):
    """Attributes are the servers' processes and addresses, the first one's first."""

    def __init__(self, folder: Path, number: str) -> None:
        super().__init__(folder, number)
        self.home = folder / "home"
        self.program = folder / "opt" / "bin"
        self.certificate = folder / "etc" / "cert.pem"
        self.tls_key = folder / "etc" / "key.pem"
        self.servers: list[subprocess.Popen[bytes]] = []
        self.urls: list[str] = []
        self.tokens: dict[str, str] = {}
        self.environ: dict[str, str] = {}

    def install(self, requirement: str = ".") -> None:
        """As `pip install torchyard` in /opt/torchyard, by root."""
        python = str(self.folder / "opt" / "bin" / "python")
        uv_program = [uv.find_uv_bin(), "--quiet"]
        self._run([*uv_program, "venv", "--python", python_for_all(), str(self.folder / "opt")])
        # What people get, in the versions of the lock; no tool of the tests.
        locks = ["-c", "requirements-all.lock", "--build-constraints", "requirements-build.lock"]
        self._run([*uv_program, "pip", "install", "-p", python, *locks, requirement])

    def _run(self, words: list[str]) -> None:
        retry = [sys.executable, "tools/retry.py"]
        subprocess.run([*retry, *words], check=True, cwd=ROOT, stdin=subprocess.DEVNULL)

    def make_certificate(self) -> None:
        """As an administrator does: the key is the server's to read, and nobody else's."""
        words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        words += ["-subj", "/CN=localhost", "-keyout", str(self.tls_key)]
        words += ["-out", str(self.certificate)]
        subprocess.run(words, check=True, capture_output=True)
        self.tls_key.chmod(0o600)
        shutil.chown(self.tls_key, self.user("server"), self.user("server"))

    def command(self, *words: str) -> list[str]:
        return [str(self.program / "yard-runner"), "--config", str(self.config_file), *words]

    def start(self) -> None:
        """The runner, whose code is really root's here."""
        with open(self.log, "ab") as log:
            words = self.command("serve", "--socket", str(self.socket))
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.wait_until_it_answers()

    def start_server(self, *options: str) -> int:
        """Start a server as its own user; its number."""
        readable, writable = os.pipe()
        words = [str(self.program / "yard-server"), "--home", str(self.home)]
        words += ["--host", "0.0.0.0", "--runner", str(self.socket)]
        words += ["--tls-cert", str(self.certificate), "--tls-key", str(self.tls_key)]
        words += ["--ready-fd", str(writable), *options]
        user = pwd.getpwnam(self.user("server"))
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.home), **self.environ}
        with open(self.folder / "server.log", "ab") as log:
            server = subprocess.Popen(
                words,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[writable],
                user=user.pw_uid,
                group=user.pw_gid,
                extra_groups=[],
            )
        os.close(writable)
        with os.fdopen(readable) as pipe:
            url = pipe.readline().strip()
        assert url, (self.folder / "server.log").read_text()[-3000:]
        self.servers.append(server)
        self.urls.append(url)
        return len(self.servers) - 1

    def stop_servers(self, signum: int = signal.SIGTERM) -> None:
        while self.servers:
            server = self.servers.pop()
            self.urls.pop()
            server.send_signal(signum)
            server.wait()

    @property
    def owner_token(self) -> str:
        return (self.home / "token").read_text().strip()

    def add_person(self, name: str) -> None:
        body = {"name": name, "role": "data-scientist", "workspace": "default"}
        self.ask("POST", "/v1/users", body)
        made = self.ask("POST", f"/v1/users/{name}/tokens", {"name": "test"})
        self.tokens[name] = made["token"]

    def ask(
        self, method: str, path: str, body: Any = None, person: str = "", server: int = 0
    ) -> Any:
        """An answer of the native API; as the owner without a person."""
        token = self.tokens[person] if person else self.owner_token
        request = urllib.request.Request(
            self.urls[server] + path,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        deadline = time.monotonic() + _LIMIT_S
        while True:
            try:
                with urllib.request.urlopen(request, timeout=90) as answer:
                    content = answer.read()
                break
            except urllib.error.HTTPError as error:
                if error.code != 503 or time.monotonic() > deadline:
                    raise AssertionError(f"{method} {path}: {error.read()!r}") from error
                time.sleep(0.2)  # it is busy
        kind = answer.headers.get("Content-Type", "")
        return json.loads(content) if kind.startswith("application/json") else content

    def submit(self, person: str, command: str, **job: Any) -> str:
        body = {"command": command, "environment": "python", **job}
        made = self.ask("POST", "/v1/workspaces/default/jobs", body, person)
        return str(made["name"])

    def job(self, name: str) -> Mapping[str, Any]:
        job: Mapping[str, Any] = self.ask("GET", f"/v1/workspaces/default/jobs/{name}")
        return job

    def wait(self, name: str, *statuses: str) -> Mapping[str, Any]:
        deadline = time.monotonic() + _LIMIT_S
        while (job := self.job(name))["status"] not in (statuses or ENDED):
            assert time.monotonic() < deadline and (not statuses or job["status"] not in ENDED), (
                f"{job}\n{(self.folder / 'server.log').read_text()[-3000:]}"
            )
            time.sleep(0.05)
        return job

    def output(self, name: str, file: str = "user_logs/std_log.txt") -> str:
        content = self.ask("GET", f"/v1/workspaces/default/jobs/{name}/files/{file}")
        return content.decode() if isinstance(content, bytes) else str(content)

    def attempts(self) -> list[Path]:
        """The scratch folders of now."""
        return sorted((self.node_folder / "scratch").iterdir())

    def close(self) -> None:
        self.stop_servers()
        super().close()


@contextmanager
def shared_site(requirement: str = ".", **changes: Any) -> Iterator[SharedSite]:
    """The installation, with a runner that answers; servers are started by the test."""
    folder = Path(tempfile.mkdtemp(prefix="tyt-", dir="/var/lib"))
    folder.chmod(0o755)
    site = SharedSite(folder, str(os.getpid()))
    try:
        site.add_users("server", "build", "engine", "other", "job1", "job2", "anna")
        site.install(requirement)
        site.home.mkdir(mode=0o700)
        shutil.chown(site.home, site.user("server"), site.user("server"))
        python = str(site.program / "python")
        accounts = {"anna": site.user("anna")}
        site.configure(**{"python": python, "accounts": accounts, **changes})
        site.make_certificate()
        site.start()
        yield site
    finally:
        for log in (site.log, site.folder / "server.log"):
            if log.exists():
                sys.stderr.write(log.read_text()[-4000:])
        site.close()
