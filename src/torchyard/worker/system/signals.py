"""Who sent a signal.

Owns: the sender's number, user and name as the kernel tells them; keeping them in a file.
Leaves: what the signal means to server/control.py and node/supervisor.py.
Always: the number and the user are certain; the name is missing if the sender has ended, as a
`kill` usually has.
"""

from __future__ import annotations

import json
import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# Those that ask a process to end.
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True)
class Received:
    """A signal and the process that sent it; `pid` is 0 for one outside of this namespace."""

    signum: int
    pid: int = 0
    uid: int = 0
    name: str = ""

    @property
    def text(self) -> str:
        """`SIGTERM from pid 123 (systemd, user root)`."""
        try:
            signal_name = signal.Signals(self.signum).name
        except ValueError:
            signal_name = f"signal {self.signum}"
        if not self.pid:
            return f"{signal_name} from the kernel or another container"
        name = self.name or "already ended"
        return f"{signal_name} from pid {self.pid} ({name}, user {_user(self.uid)})"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def received(info: signal.struct_siginfo) -> Received:
    """What `sigwaitinfo` returned."""
    return Received(info.si_signo, info.si_pid, info.si_uid, _name(info.si_pid))


def save(file: Path, signal_received: Received) -> None:
    """Keep it for another process; a disk without space loses it."""
    try:
        draft = file.with_name(f"{file.name}.new")
        draft.write_text(json.dumps(signal_received.to_dict()))
        draft.replace(file)
    except OSError:
        pass


def load(file: Path) -> Received | None:
    """What `save` kept, if anything."""
    try:
        body = json.loads(file.read_text())
        return Received(int(body["signum"]), int(body["pid"]), int(body["uid"]), str(body["name"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() if pid else ""
    except OSError:
        return ""


def _user(uid: int) -> str:
    import pwd  # Only for a message.

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
