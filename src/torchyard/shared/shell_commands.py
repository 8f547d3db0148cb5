"""Tell where the shell of a job's command hides a failure, or does not wait.

Owns: the rules: in a pipe, at a `cd` before another command, and behind a last `&`.
Leaves: the notice at submission to jobs/spec/job_spec.py, that about a Python that failed to
worker/diagnosis/hidden_failures.py.
Always: quoted strings, comments and here-documents are ignored.
"""

from __future__ import annotations

import re

_QUOTED_OR_COMMENT = re.compile(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|(?<!\S)#[^\n]*", re.DOTALL)
_PIPE = re.compile(r"(?<![|>])\|(?!\|)")
# With `&&` behind it, a `cd` that fails ends its list.
_CD = re.compile(r"(?:^|[;&|({\n])[ \t]{0,99}cd\b[^;&|\n]*[;\n]\s*\S")
# Behind a redirection it is a part of that: `2>&1`.
_BACKGROUND = re.compile(r"(?<![&>|])&\s*\Z")
_STRICT = re.compile(r"\bset[ \t][^;&|\n]{0,99}?-\w{0,9}e|\berrexit\b|\bpipefail\b")


def hide_failures(command: str) -> bool:
    """Whether the shell goes on after a failure in a pipe or of a `cd`."""
    plain = _plain(command)
    return bool(_PIPE.search(plain) or _CD.search(plain)) and not _STRICT.search(plain)


def has_lossy_pipe(command: str) -> bool:
    """Whether a pipe loses the exit codes of the programs before its last."""
    return bool(_PIPE.search(_plain(command))) and "pipefail" not in command


def ends_in_background(command: str) -> bool:
    """Whether the shell starts the last program of a command and ends without waiting for it."""
    return bool(_BACKGROUND.search(_plain(command))) and "<<" not in command


def _plain(command: str) -> str:
    return _QUOTED_OR_COMMENT.sub(" ", command).partition("<<")[0]
