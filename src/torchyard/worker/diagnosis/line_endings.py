"""Find shell scripts of the job that have Windows line endings.

Owns: which scripts the command runs by a shell, or a shell has named in the log; the advice.
Leaves: telling of it to diagnosis.py where the rank failed, else to hidden_failures.py.
Always: only what a shell reads counts, because Python takes these line endings as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from torchyard.worker.diagnosis import artifacts

_PATH = r"(?P<path>(?!-)[\w./+-]{1,300})"
# `bash a.sh`, `source a.sh`, `. a.sh`, and `./a.sh` or `scripts/a` where a program stands.
_SHELL_READS = re.compile(
    rf"(?<![\w.-])(?:(?:/bin/|/usr/bin/)?(?:ba|da)?sh(?:[ \t]{{1,9}}[-+][\w-]{{1,30}}){{0,9}}"
    rf"|source|\.)[ \t]{{1,9}}{_PATH}"
)
_PROGRAM = re.compile(rf"(?:^|[;&|(\n])[ \t]{{0,99}}{_PATH}(?![\w./+-])")
_CHANGED_TO = re.compile(r"\bcd[ \t]{1,9}([\w./+-]{1,300})")
# `b.sh: line 1: set: -\r: invalid option`, `b.sh: 3: \r: not found`.
_NAMED = re.compile(r"^(?P<path>[\w./+-]{1,300}): (?:line )?\d{1,9}: ", re.MULTILINE)
_SHELL = re.compile(rb"#![^\n]{0,200}\b(?:ba|da)?sh\b")
_MOST_SCRIPTS = 20


def scripts(command: str, log: str, work: Path) -> list[str]:
    """The scripts, as the command or the shell's messages in `log` name them."""
    folders = [work, *(work / path for path in _CHANGED_TO.findall(command))]
    names: dict[Path, str] = {}
    for path in list(dict.fromkeys(_paths(command, log)))[:_MOST_SCRIPTS]:
        for file in (folder / path for folder in folders):
            if file.is_relative_to(work) and _is_concerned(file):
                names.setdefault(file, path)
    return list(names.values())


def advice(script: str) -> str:
    return (
        f"`{script}` has Windows line endings, and a shell takes the carriage return at the end of "
        f"each line as part of the last word: convert the file, as `sed -i 's/\\r$//' {script}` "
        "does"
    )


def _paths(command: str, log: str) -> Iterator[str]:
    for match in _SHELL_READS.finditer(command):
        yield match["path"]
    for match in _PROGRAM.finditer(command):
        if "/" in match["path"]:
            yield match["path"]
    for match in _NAMED.finditer(log):
        yield match["path"]


def _is_concerned(file: Path) -> bool:
    content = artifacts.beginning(file)
    if b"\r\n" not in content or b"\0" in content:
        return False
    return not content.startswith(b"#!") or _SHELL.match(content) is not None
