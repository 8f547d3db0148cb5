"""Requirement lines, as pip reads them.

Owns: which lines an environment may carry, and their canonical order.
Leaves: what a requirement means to uv.
Always: a line names a package or an index; nothing points at a file of the user's machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from torchyard.base.errors import InvalidSpec

At = tuple[str | int, ...]

_OPTIONS = (
    "--index-url",
    "-i",
    "--extra-index-url",
    "--find-links",
    "-f",
    "--pre",
    "--no-binary",
    "--only-binary",
    "--trusted-host",
)
_COMMENT = re.compile(r"(^|\s)#.*$")
# As conda writes a version, and pip does not.
_ONE_EQUALS = re.compile(r"([\w.-]+(?:\[[^\]]*\])?)\s*=\s*([\w.*+!-]+)(?:\s*;.*)?\Z", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?", re.ASCII)


def read(lines: Any, at: At) -> list[str]:
    """The lines without comments and blanks; a text is split, a list taken as it is.

    Raises:
        InvalidSpec: a line is not a string, or names a file.
    """
    if isinstance(lines, str):
        lines = lines.replace("\\\n", " ").splitlines()
    if not isinstance(lines, list | tuple):
        raise InvalidSpec(
            "pip requirements are not a list of lines", "write `- torch==2.13.0`", at=at
        )
    kept = []
    for position, line in enumerate(lines):
        here = (*at, position)
        if not isinstance(line, str):
            raise InvalidSpec(f"pip requirement `{line}` is not a string", "quote it", at=here)
        text = " ".join(_COMMENT.sub("", line).split())
        if text:
            _check(text, here)
            kept.append(text)
    return kept


def canonical(lines: list[str]) -> tuple[str, ...]:
    """Options first, as written; then the packages by name, each line once."""
    options = [line for line in lines if line.startswith("-")]
    packages = {line for line in lines if not line.startswith("-")}
    return (*dict.fromkeys(options), *sorted(packages, key=lambda line: (line.lower(), line)))


def over(lines: Sequence[str], others: Sequence[str]) -> list[str]:
    """The lines of both, but those of `others` win for packages in both."""
    named = {package_name(line) for line in others if not line.startswith("-")}
    kept = [line for line in lines if line.startswith("-") or package_name(line) not in named]
    return [*kept, *others]


def package_name(line: str) -> str:
    """The package of a requirement or lock line, as PyPI writes it (`scikit-learn`)."""
    match = _NAME.match(line)
    return normal(match[0]) if match else ""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _check(text: str, at: At) -> None:
    if text.startswith("-"):
        option = re.split(r"[ =]", text, maxsplit=1)[0]
        if option not in _OPTIONS:
            raise InvalidSpec(
                f"pip option `{option}` can't be used in an environment",
                "list the packages themselves, each with its version",
                at=at,
            )
        return
    if match := _ONE_EQUALS.match(text):
        raise InvalidSpec(
            f"pip requirement `{text[:100]}` has one `=`",
            f"write `{match[1]}=={match[2]}`: one `=` is how conda pins a version",
            at=at,
        )
    if not _NAME.match(text) or re.match(r"[\w.-]*[/\\]", text) or re.search(r"@\s*file:", text):
        raise InvalidSpec(
            f"pip requirement `{text}` points at a file, which an environment can't carry",
            "put the code in the job's `code` folder, or name a package or a URL",
            at=at,
        )
