"""Type the commands of a page of docs/transcripts again, and write what they print.

    python tools/record_transcript.py docs/transcripts/environments.md

In the page a command is an indented line that begins with `$ yard`; the indented lines below it are
what it printed. The comment `<!-- setup … -->` makes the files that the commands name.

Owns: a fresh folder and a fresh server for the page, one shell for all commands.
Leaves: the text between the commands as it is.
Always: no path of this machine is written; an output is cut to 170 columns, with `…`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

_INDENT = "    "
_COMMAND = f"{_INDENT}$ yard "
_COLUMNS = 170
_SETUP = re.compile(r"<!-- setup\n(.*?)-->", re.DOTALL)
_DATE = re.compile(r"\(\d{4}-\d\d-\d\d\)")
_LIMIT_S = 900


def commands_of(page: str) -> list[str]:
    """The commands in the page's order."""
    return [line[len(_INDENT) + 2 :] for line in page.splitlines() if line.startswith(_COMMAND)]


def rewritten(page: str, outputs: list[list[str]]) -> str:
    """The page with these outputs in the place of those that it has, one for each command."""
    lines: list[str] = []
    left = iter(outputs)
    is_output = False
    for line in page.splitlines():
        if line.startswith(_COMMAND):
            lines.append(line)
            lines += [_INDENT + text if text else "" for text in next(left)]
            is_output = True
        elif not (is_output and (line.startswith(_INDENT) or not line)):
            if is_output:
                lines.append("")
            lines.append(line)
            is_output = False
    today = f"({datetime.now(timezone.utc):%Y-%m-%d})"
    return _DATE.sub(today, "\n".join(lines), count=1) + "\n"


def recorded(page: str) -> list[list[str]]:
    """What each command prints."""
    with tempfile.TemporaryDirectory(prefix="transcript-") as top:
        folder = Path(top) / "typed"
        folder.mkdir()
        environ = {
            **os.environ,
            "TORCHYARD_HOME": f"{top}/home",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        setup = _SETUP.search(page)
        script = [setup[1] if setup else "", "yard server start > /dev/null"]
        for number, command in enumerate(commands_of(page)):
            script.append(f"{{ {command}\n}} > {top}/{number} 2>&1 < /dev/null")
        try:
            subprocess.run(
                ["bash", "-c", "\n".join(script)],
                cwd=folder,
                env=environ,
                timeout=_LIMIT_S,
                check=False,
            )
        finally:
            stop = [str(Path(sys.executable).with_name("yard")), "server", "stop"]
            subprocess.run(stop, env=environ, stdout=subprocess.DEVNULL, check=True)
        return [
            [
                _cut(line.replace(top, "…"))
                for line in Path(top, str(number)).read_text(errors="replace").splitlines()
            ]
            for number in range(len(commands_of(page)))
        ]


def _cut(line: str) -> str:
    line = line.rstrip()
    return line if len(line) <= _COLUMNS else line[: _COLUMNS - 1] + "…"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    page_file: Path = parser.parse_args().page
    page = page_file.read_text(encoding="utf-8")
    page_file.write_text(rewritten(page, recorded(page)), encoding="utf-8")


if __name__ == "__main__":
    main()
