"""Make this machine a node from elsewhere: what `yard compute create --hosts` runs here by ssh.

Sent as text, and run by the machine's own Python. On its standard input: a request as one line of
JSON, the agent as a zip, then answers to what it asks. On its standard output: lines that begin
with `torchyard ` and go on in JSON, so that what a login shell prints is kept apart.

    {"say": "…"}                          for the person who waits
    {"need": "uv", "system": "…"}         is answered by `{"bytes": n}` and the program; `ray` by
                                          an archive of its environment and of its Python
    {"started": {"address": "…"}}         is answered by `keep`; by anything else all is undone
    {"done": {…}}, {"error": "…", "hint": "…"}

Owns: what is put on the machine and taken away again, starting the agent apart from the connection.
Leaves: being a node to agent.py, which comes in the zip; what went wrong before this ran to ssh.
Always: standard library only, Python 3.9 and later; nothing of torchyard is imported but from the
zip; the token comes by standard input and goes on by a pipe, and is in no file, no argument and no
variable; until `keep` has come, whatever ends the connection undoes everything.
"""

from __future__ import annotations

import json
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any, Optional

_AGENT, _RECORD, _LOG, _AUTHORITY = "agent.pyz", "agent.json", "agent.log", "server-ca.pem"
_JOIN_S = 1800.0
_END_S = 100.0
_POLL_S = 0.2
_REACH_S = 15.0
_LINES = 40
_UV_PLACES = ("~/.local/bin", "~/.cargo/bin")


class _Failed(Exception):
    """An error for the person who waits."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def main() -> int:
    requests = sys.stdin.buffer
    request = json.loads(requests.readline())
    agent = requests.read(request["agent_bytes"])
    try:
        if not sys.platform.startswith("linux"):
            raise _Failed(f"its system is {platform.system()}, and nodes run on Linux")
        folder = _folder()
        if request["action"] == "leave":
            _tell({"done": {"left": _leave(folder, agent)}})
        else:
            _Join(request, agent, folder, requests).run()
    except _Failed as error:
        _tell({"error": error.message, "hint": error.hint})
        return 1
    except OSError as error:
        _tell({"error": f"{error.filename or 'a file'}: {error.strerror or error}", "hint": ""})
        return 1
    return 0


def _tell(line: dict[str, Any]) -> None:
    try:
        sys.stdout.write("torchyard " + json.dumps(line) + "\n")
        sys.stdout.flush()
    except OSError:
        pass  # nobody listens any more, which standard input says, too


def _folder() -> Path:
    """Where `yard node join` keeps a node."""
    folder = os.environ.get("TORCHYARD_NODE_FOLDER")
    home = os.environ.get("TORCHYARD_HOME") or "~/.torchyard"
    return Path(folder or os.path.join(home, "node")).expanduser().absolute()


class _NotInstalled(_Failed):
    """Ray can't be had here; it may be carried here."""


class _Join:
    """Make this machine a node, or leave it as it was."""

    def __init__(
        self, request: dict[str, Any], agent: bytes, folder: Path, requests: IO[bytes]
    ) -> None:
        self._request = request
        self._agent = agent
        self._folder = folder
        self._requests = requests
        self._process: Optional[subprocess.Popen[bytes]] = None
        # What was there before stays; of the folders above, those that are made here go again.
        self._before = sorted(os.listdir(folder)) if folder.is_dir() else []
        self._made = [each for each in (folder, *folder.parents) if not each.exists()]

    def run(self) -> None:
        is_kept = False
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._refuse_second()
            self._write_file(_AGENT, self._agent)
            sys.path.insert(0, str(self._folder / _AGENT))
            url = self._way_back()
            variables = self._variables()
            try:
                address = self._start(url, variables)
            except _NotInstalled as error:
                self._fetch_ray(error)
                address = self._start(url, variables)
            _tell({"started": {"address": address}})
            is_kept = self._answer() == "keep"
            if not is_kept:
                raise _Failed(self._last_words() or "it was not wanted any more")
        finally:
            if not is_kept:
                self._undo()
        _tell({"done": {"address": address}})

    def _write_file(self, name: str, content: bytes) -> Path:
        file = self._folder / name
        draft = file.with_name(f".{name}.{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
        os.replace(draft, file)
        return file

    def _refuse_second(self) -> None:
        import fcntl

        descriptor = os.open(self._folder / "agent.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _Failed(
                "it is a node already: a `yard node join` runs there",
                "see its name with `yard node list`; `yard node leave NAME` ends it",
            ) from None
        finally:
            os.close(descriptor)

    def _way_back(self) -> str:
        """The first of the server's addresses that answers."""
        from torchyard.base.errors import TorchyardError
        from torchyard.base.http import Transport

        authority = ""
        if self._request["certificate"]:
            authority = str(self._write_file(_AUTHORITY, self._request["certificate"].encode()))
        self._request["ca_cert"] = authority
        failures = []
        for url in self._request["server_urls"]:
            try:
                Transport(url, "", _REACH_S, ca_cert=authority).get("/livez")
            except TorchyardError as error:
                failures.append(error.message)
                continue
            return str(url)
        first = self._request["server_urls"][0]
        raise _Failed(
            f"it has no way back to the server: {'; '.join(failures)}",
            f"try `curl -k {first}/livez` there; open the way in the firewall of the server's "
            "machine, or name an address that it reaches: `torchyard: {server_urls: [https://…]}`",
        )

    def _variables(self) -> dict[str, str]:
        """Those of the agent, with a uv on its path."""
        programs = self._folder / "bin"
        folders = [*os.get_exec_path(), *map(os.path.expanduser, _UV_PLACES), str(programs)]
        variables = {**os.environ, "PATH": os.pathsep.join(dict.fromkeys(folders))}
        # What jobs bring, such as their environments, goes with the node.
        variables.setdefault("TORCHYARD_NODE_FOLDER", str(self._folder / "jobs"))
        if shutil.which("uv", path=variables["PATH"]) is None:
            self._fetch_uv(programs)
        if (programs / "uv").exists():
            # What a uv of ours keeps goes with the node; a uv of the person's own keeps its own.
            variables.setdefault("UV_CACHE_DIR", str(self._folder / "uv-cache"))
            variables.setdefault("UV_PYTHON_INSTALL_DIR", str(self._folder / "uv-pythons"))
        return variables

    def _fetch_uv(self, folder: Path) -> None:
        size = self._need("uv")
        hint = "install it there: https://docs.astral.sh/uv/getting-started/installation"
        if not size:
            raise _Failed("it has no `uv`, and this machine has none that would run there", hint)
        content = self._requests.read(size)
        folder.mkdir(mode=0o700, exist_ok=True)
        program = folder / "uv"
        program.write_bytes(content)
        program.chmod(0o700)
        try:
            subprocess.run([program, "--version"], check=True, capture_output=True, timeout=60)
        except (OSError, subprocess.SubprocessError) as error:
            raise _Failed(
                f"it has no `uv`, and that of this machine does not run there ({error})", hint
            ) from None

    def _need(self, need: str, **more: str) -> int:
        """Ask for something; how many bytes of it come."""
        _tell({"need": need, "system": f"{platform.system()} {platform.machine()}", **more})
        return int(json.loads(self._requests.readline() or b"{}").get("bytes", 0))

    def _fetch_ray(self, reason: _NotInstalled) -> None:
        """Take the environment of who asks, with the Python that it is made of."""
        ray = self._request["ray"]
        size = self._need("ray", version=ray["version"], python=ray["python"])
        if not size:
            raise reason
        engines = self._folder / "engines"
        arrived = engines / ".arrived"
        arrived.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = arrived / "archive"
        with open(file, "wb") as opened:
            while size:
                block = self._requests.read(min(size, 1 << 20))
                if not block:
                    raise _Failed("the connection ended")
                opened.write(block)
                size -= len(block)
        from torchyard.base.errors import BuildFailed
        from torchyard.node_agent import carried_ray

        try:
            carried_ray.unpack(file, engines, ray["version"], ray["python"])
        except BuildFailed as error:
            raise _Failed(error.message, error.hint) from None
        shutil.rmtree(arrived)

    def _start(self, url: str, variables: dict[str, str]) -> str:
        """Start the agent, and wait until it has joined; the machine's address."""
        from torchyard.node_agent import facts
        from torchyard.shared import processes

        address = self._request["address"] or facts.address_towards(url)
        keys = ("token", "ca_cert", "workspace", "compute", "name", "address")
        content = {key: self._request[key] for key in keys}
        content |= {"url": url, "folder": str(self._folder)}
        log = self._folder / _LOG
        with open(log, "wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(self._folder / _AGENT)],
                env=variables,
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        record = {
            "pid": self._process.pid,
            "start_time": processes.start_time(self._process.pid),
            "kept": self._before,
        }
        self._write_file(_RECORD, json.dumps(record).encode())
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(content).encode())
        self._process.stdin.close()
        self._await(log)
        return address

    def _await(self, log: Path) -> None:
        assert self._process is not None
        line_count = 0
        deadline = time.monotonic() + _JOIN_S
        while True:
            has_ended = self._process.poll() is not None
            lines = log.read_text(errors="replace").splitlines()
            for line in lines[line_count:]:
                if line.startswith("Joined "):
                    return
                if not line.startswith(("error:", "hint:")):
                    _tell({"say": line})
            line_count = len(lines)
            if has_ended:
                raise _of_agent(lines)
            if time.monotonic() > deadline:
                raise _Failed(f"it has not joined within {_JOIN_S / 60:.0f} minutes")
            # Nothing is expected from there: what can be read is its end.
            if select.select([self._requests], [], [], _POLL_S)[0]:
                raise _Failed("the connection ended")

    def _answer(self) -> str:
        return self._requests.readline().decode("ascii", "replace").strip()

    def _last_words(self) -> str:
        """What Ray wrote last: the head may not be reached from here."""
        try:
            lines = (self._folder / "ray.log").read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return " / ".join(line.strip() for line in lines[-3:] if line.strip())[-400:]

    def _undo(self) -> None:
        if self._process is not None:
            _end(self._process.pid, self._process)
        _remove(self._folder, self._before)
        for folder in self._made:
            try:
                folder.rmdir()
            except OSError:
                return


def _of_agent(lines: list[str]) -> _Failed:
    """Why the agent has ended, of what it wrote."""
    words = {}
    for line in lines:
        key, colon, text = line.partition(": ")
        if colon and key in ("error", "hint"):
            words[key] = text
    if "can't be installed" in words.get("error", ""):
        return _NotInstalled(words["error"], words.get("hint", ""))
    message = words.get("error") or " / ".join(lines[-_LINES:])[-400:] or "it ended without a word"
    return _Failed(f"the node's program ended: {message}", words.get("hint", ""))


def _end(pid: int, child: Optional[subprocess.Popen[bytes]]) -> None:
    """End the agent, which ends its Ray."""
    from torchyard.shared import processes

    if child is not None and child.poll() is not None:
        return
    started = processes.start_time(pid)
    for signum in (signal.SIGTERM, signal.SIGKILL):
        processes.send(pid, started, signum)
        deadline = time.monotonic() + _END_S
        while time.monotonic() < deadline:
            if child is not None and child.poll() is not None:
                return
            if child is None and not processes.is_running(pid, started):
                return
            time.sleep(_POLL_S)


def _leave(folder: Path, agent: bytes) -> bool:
    """End the node that was made from elsewhere, and remove what it kept; whether there was one."""
    try:
        record = json.loads((folder / _RECORD).read_text())
    except (OSError, ValueError):
        return False
    # The zip that came, for the one that lies here may be of another version.
    arrived = folder / f".leaving-{os.getpid()}.pyz"
    arrived.write_bytes(agent)
    sys.path.insert(0, str(arrived))
    from torchyard.shared import processes

    if processes.is_running(record["pid"], record["start_time"]):
        _end(record["pid"], None)
    _remove(folder, record["kept"])
    for each in (folder, folder.parent):
        try:
            each.rmdir()
        except OSError:
            break
    return True


def _remove(folder: Path, exceptions: list[str]) -> None:
    """Remove what is in the folder but was not there before; what a link leads to stays."""
    for name in os.listdir(folder):
        if name in exceptions:
            continue
        entry = folder / name
        if entry.is_dir() and not entry.is_symlink():
            _remove_tree(entry)
        else:
            entry.unlink()


def _remove_tree(folder: Path) -> None:
    # Environments of jobs are kept without the permission to write.
    for parent, _, _ in os.walk(folder):
        os.chmod(parent, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
