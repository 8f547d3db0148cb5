"""Run an installing command up to three times, since registries and networks fail for a while.

    python3 tools/retry.py npm ci --prefix .azurite

Owns: the number of tries, the pauses between them, and which failures no later try can mend.
Leaves: what the command does; its output is passed on as it comes.
Always: standard library only, because nothing else is installed yet; the exit code is that of the
last try. A try repeats the whole command, so the command must be safe to repeat.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from os import PathLike

PAUSES_S = (10.0, 30.0)
# A shell's codes for a command that cannot be run, and for Ctrl-C.
FINAL_CODES = (126, 127, 130)
# uv resolved and found no versions; npm found none, or a lock file that differs from its
# package.json. What pip says for these it also says when the network failed.
FINAL_ERROR = re.compile(
    rb"No solution found when resolving"
    rb"|npm (?:error|ERR!) code (?:ETARGET|ERESOLVE|EUSAGE|EBADENGINE)"
)
# Beside uv's "no solution": an index may have been left out because it did not answer.
NETWORK_ERROR = re.compile(rb"Failed to fetch|error sending request")


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        print("usage: retry.py COMMAND [ARGUMENT ...]", file=sys.stderr)
        return 2
    return run(arguments)


def run(
    command: Sequence[str | PathLike[str]],
    *,
    cwd: str | PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    pauses_s: Sequence[float] = PAUSES_S,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Run a command, again after each pause while it fails; return the last exit code."""
    for pause_s in pauses_s:
        code, errors = _run_once(command, cwd, env)
        if not may_pass_later(code, errors):
            return code
        print(
            f"warning: `{_name(command)}` failed with exit code {code}; trying again in "
            f"{pause_s:.0f} s",
            file=sys.stderr,
            flush=True,
        )
        sleep(pause_s)
    return _run_once(command, cwd, env)[0]


def may_pass_later(code: int, errors: bytes) -> bool:
    """Whether a command that ended so may pass at its next try."""
    if code <= 0 or code in FINAL_CODES:  # it passed, or a signal ended it
        return False
    return not FINAL_ERROR.search(errors) or NETWORK_ERROR.search(errors) is not None


def _run_once(
    command: Sequence[str | PathLike[str]],
    cwd: str | PathLike[str] | None,
    env: Mapping[str, str] | None,
) -> tuple[int, bytes]:
    """Return the exit code and what the command wrote to stderr, which is passed on."""
    try:
        process = subprocess.Popen(command, cwd=cwd, env=env, stderr=subprocess.PIPE)
    except OSError as error:
        print(f"error: cannot run `{command[0]}`: {error.strerror}", file=sys.stderr)
        return 127, b""
    lines = []
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            sys.stderr.write(line.decode(errors="replace"))
            sys.stderr.flush()
            lines.append(line)
    return process.returncode, b"".join(lines)


def _name(command: Sequence[str | PathLike[str]]) -> str:
    """The command without paths and long scripts, for a message."""
    words = [str(word).rpartition("/")[2] for word in command[:3]]
    return " ".join(word if len(word) < 40 else "…" for word in words)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
