"""`python -I -m torchyard.worker.launch.environment_shell NAME SHARED LOCK [COMMAND…]`

Owns: an interactive shell in a thin environment: its folder, its variables, cleaning up.
Leaves: the thin environment to files/thin_environment.py, choosing it to the calling command.
Always: the folder is removed when the shell ends, even by an error; folders of killed shells are
removed by the next one; the shared environment is not removed while a shell is open.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from torchyard.shared import locks
from torchyard.worker.files import thin_environment

_PREFIX = "yard-shell-"
_LOCK_FILE = "held"
_AWAITED_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
_REMOVED_VARIABLES = ("PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV", "PS1")
# The user's own file comes first, because it may change PATH.
_BASHRC = """\
[ -f ~/.bashrc ] && . ~/.bashrc
. {activate}
PS1="($TORCHYARD_ENVIRONMENT) ${{PS1-\\\\$ }}"
"""


def main(arguments: Sequence[str]) -> int:
    """Return the command's exit code, or 128 plus the signal that killed it."""
    if len(arguments) < 3:
        sys.exit("usage: environment_shell NAME SHARED LOCK [COMMAND…]")
    name, shared, lock, *command = arguments
    # Held until this process ends. If this user can't open the lock, they can't remove the
    # environment either.
    with suppress(OSError):
        locks.share_until_exit(Path(lock))
    _remove_stale_folders()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    folder_lock = locks.open_lock(folder / _LOCK_FILE)
    locks.lock(folder_lock)
    try:
        programs = thin_environment.create(Path(shared), folder / "environment")
        variables = _variables(os.environ, name, programs)
        return _run(command or _shell(variables, folder, programs), variables)
    except FileNotFoundError as error:
        print(f"error: `{error.filename or error}` does not exist", file=sys.stderr)
        return 127
    except PermissionError as error:
        print(f"error: `{error.filename}` can't be run: {error.strerror}", file=sys.stderr)
        return 126
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(folder_lock)


def _variables(base: Mapping[str, str], name: str, programs: Path) -> dict[str, str]:
    lock_descriptor = {key: value for key, value in base.items() if key not in _REMOVED_VARIABLES}
    return {
        **lock_descriptor,
        "PATH": f"{programs}{os.pathsep}{base.get('PATH', os.defpath)}",
        "VIRTUAL_ENV": str(programs.parent),
        "TORCHYARD_ENVIRONMENT": name,
    }


def _shell(variables: Mapping[str, str], folder: Path, programs: Path) -> list[str]:
    shell = variables.get("SHELL") or "/bin/sh"
    if os.path.basename(shell) != "bash":
        return [shell]
    bashrc = folder / "bashrc"
    activate = str(programs / "activate").replace("'", "'\\''")
    bashrc.write_text(_BASHRC.format(activate=f"'{activate}'"), encoding="utf-8")
    return [shell, "--rcfile", str(bashrc)]


def _run(command: Sequence[str], variables: Mapping[str, str]) -> int:
    # Searched on the environment's PATH, not on this process's.
    program = shutil.which(command[0], path=variables["PATH"])
    if program is None:
        raise FileNotFoundError(2, "", command[0])
    # Ctrl-C is for the command; this process stays to clean up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Taken one by one below: a handler that becomes due right before a wait would run after it.
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED_SIGNALS)
    process = subprocess.Popen(
        command, executable=program, env=dict(variables), preexec_fn=_restore_signals
    )
    while (code := process.poll()) is None:
        signum = signal.sigwait(_AWAITED_SIGNALS)
        if signum != signal.SIGCHLD:
            process.send_signal(signum)
    return code if code >= 0 else 128 - code


def _restore_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED_SIGNALS)


def _remove_stale_folders() -> None:
    """Remove the folders of shells that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if folder.stat().st_uid == os.getuid() and (folder / _LOCK_FILE).exists():
                with locks.held_if_free(folder / _LOCK_FILE) as is_free:
                    if is_free:
                        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
