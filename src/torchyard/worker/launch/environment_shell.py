"""`python -I -m torchyard.worker.launch.environment_shell NAME SHARED LOCK [COMMAND…]`

Owns: a person's shell in a thin environment over a shared one: its folder, its variables, its end.
Leaves: the thin environment to files/thin_environment.py, which environment to the command that
runs this.
Always: the folder is removed when the shell ends, however it ends; what a killed one left is
removed by the next; as long as a shell is open, nobody removes the shared environment.
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
_HELD = "held"
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
_NOT_PASSED_ON = ("PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV", "PS1")
# The user's own comes first, since it may put other folders before those of the environment.
_BASHRC = """\
[ -f ~/.bashrc ] && . ~/.bashrc
. {activate}
PS1="($TORCHYARD_ENVIRONMENT) ${{PS1-\\\\$ }}"
"""


def main(arguments: Sequence[str]) -> int:
    """Exit code: the command's; 128 and the signal's number when it was killed."""
    if len(arguments) < 3:
        sys.exit("usage: environment_shell NAME SHARED LOCK [COMMAND…]")
    name, shared, lock, *command = arguments
    # Held until this process ends; a file that is not ours to open is nobody's of ours to remove.
    with suppress(OSError):
        locks.share_until_exit(Path(lock))
    _sweep()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    held = locks.open_lock(folder / _HELD)
    locks.lock(held)
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
        os.close(held)


def _variables(base: Mapping[str, str], name: str, programs: Path) -> dict[str, str]:
    kept = {key: value for key, value in base.items() if key not in _NOT_PASSED_ON}
    return {
        **kept,
        "PATH": f"{programs}{os.pathsep}{base.get('PATH', os.defpath)}",
        "VIRTUAL_ENV": str(programs.parent),
        "TORCHYARD_ENVIRONMENT": name,
    }


def _shell(variables: Mapping[str, str], folder: Path, programs: Path) -> list[str]:
    shell = variables.get("SHELL") or "/bin/sh"
    if os.path.basename(shell) != "bash":
        return [shell]
    start = folder / "bashrc"
    activate = str(programs / "activate").replace("'", "'\\''")
    start.write_text(_BASHRC.format(activate=f"'{activate}'"), encoding="utf-8")
    return [shell, "--rcfile", str(start)]


def _run(command: Sequence[str], variables: Mapping[str, str]) -> int:
    # Looked for on the environment's PATH, not on ours.
    program = shutil.which(command[0], path=variables["PATH"])
    if program is None:
        raise FileNotFoundError(2, "", command[0])
    # The terminal's Ctrl-C is the command's; we stay to clean up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # One that comes before it can be passed on waits.
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    process = subprocess.Popen(
        command, executable=program, env=dict(variables), preexec_fn=_as_before
    )
    for ending in _PASSED_ON:
        signal.signal(ending, lambda number, _: process.send_signal(number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    code = process.wait()
    return code if code >= 0 else 128 - code


def _as_before() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)


def _sweep() -> None:
    """Remove what shells left that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if folder.stat().st_uid == os.getuid() and (folder / _HELD).exists():
                with locks.held_if_free(folder / _HELD) as is_free:
                    if is_free:
                        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
