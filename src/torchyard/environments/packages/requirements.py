"""Requirement lines, as pip reads them.

Owns: which lines an environment may carry, and their canonical order.
Leaves: what a requirement means to uv.
Always: a line names a package or an index; nothing points at a file of the user's machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from torchyard.base.errors import InvalidSpec
from torchyard.shared.module_packages import NO_PACKAGES, PACKAGES

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
_MOST_ERRORS = 20
_COMMENT = re.compile(r"(^|\s)#.*$")
# As conda writes a version, and pip does not.
_ONE_EQUALS = re.compile(r"([\w.-]+(?:\[[^\]]*\])?)\s*=\s*([\w.*+!-]+)(\s*;.*)?\Z", re.ASCII)
_LONE_EQUALS = re.compile(r"(?<![=<>!~])= ?(?!=)")
# Operators with their signs the wrong way round.
_TURNED = {"=>": ">=", "=<": "<=", "=~": "~=", "=!": "!="}
# `~=` needs a version of two numbers.
_COMPATIBLE_WITH_ONE = re.compile(r"(~= ?\d{1,9})(?![\w.])", re.ASCII)
_LONE_TILDE = re.compile(r"~ ?(?!=)")
# Any number, as `2.x`, and a range without its comma.
_ANY = re.compile(r"(?<=\d)\.[xX]\b", re.ASCII)
_NO_COMMA = re.compile(r"([<>=~] ?[\d.]{1,40}) ?([<>=~!]=?)", re.ASCII)
_CONDAS = re.compile(r"([\w.-]+)={1,2}([\w.*+!-]+)=\w+\Z", re.ASCII)
_NAME_AND_VERSION = re.compile(r"([\w.-]+(?:\[[^\]]*\])?) ?[ @:] ?(\d[\w.*+!-]*)\Z", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?", re.ASCII)


def read(lines: Any, at: At) -> list[str]:
    """The lines without comments and blanks; a text is split, a list taken as it is.

    Raises:
        InvalidSpec: lines are not strings, or name files; all of them at once.
    """
    if isinstance(lines, str):
        lines = lines.replace("\\\n", " ").splitlines()
    if not isinstance(lines, list | tuple):
        raise InvalidSpec(
            "pip requirements are not a list of lines", "write `- torch==2.13.0`", at=at
        )
    requirement_lines, errors = [], []
    for position, line in enumerate(lines):
        here = (*at, position)
        try:
            if text := _read_line(line, here):
                requirement_lines.append(text)
        except InvalidSpec as error:
            errors.append(error)
    if errors:
        first, *others = errors[:_MOST_ERRORS]
        first.add_others(others)
        raise first
    return requirement_lines


def canonical(lines: list[str]) -> tuple[str, ...]:
    """Options first, as written; then the packages by name, each line once."""
    options = [line for line in lines if line.startswith("-")]
    packages = {line for line in lines if not line.startswith("-")}
    return (*dict.fromkeys(options), *sorted(packages, key=lambda line: (line.lower(), line)))


def over(lines: Sequence[str], others: Sequence[str]) -> list[str]:
    """The lines of both, but those of `others` win for packages in both."""
    names = {package_name(line) for line in others if not line.startswith("-")}
    inherited = [line for line in lines if line.startswith("-") or package_name(line) not in names]
    return [*inherited, *others]


def package_name(line: str) -> str:
    """The package of a requirement or lock line, as PyPI writes it (`scikit-learn`)."""
    match = _NAME.match(line)
    return normal(match[0]) if match else ""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _read_line(line: Any, at: At) -> str:
    """The line without its comment; empty for none."""
    if not isinstance(line, str):
        raise InvalidSpec(f"pip requirement `{line}` is not a string", "quote it", at=at)
    text = " ".join(_COMMENT.sub("", line).split())
    if text:
        _check(text, at)
    return text


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
    match = _ONE_EQUALS.match(text)
    if match and _is_requirement(f"{match[1]}=={match[2]}"):
        raise InvalidSpec(
            f"pip requirement `{text[:100]}` has one `=`",
            f"write `{match[1]}=={match[2]}{match[3] or ''}`: one `=` is how conda pins a version",
            at=at,
        )
    if not _NAME.match(text) or re.match(r"[\w.-]*[/\\]", text) or re.search(r"@\s*file:", text):
        raise InvalidSpec(
            f"pip requirement `{text}` points at a file, which an environment can't carry",
            "put the code in the job's `code` folder, or name a package or a URL",
            at=at,
        )
    if "://" not in text and not _is_requirement(text):
        raise InvalidSpec(f"`{text[:100]}` is not a pip requirement", _hint(text), at=at)
    name = package_name(text)
    module = next((each for each in NO_PACKAGES if each.lower() == name), "")
    if module:
        raise InvalidSpec(
            f"`{module}` is a module, and not the name of its package",
            f"write `{PACKAGES[module]}`",
            at=at,
        )


def _hint(text: str) -> str:
    if form := next(filter(_is_requirement, _likely_forms(text)), ""):
        return f"write `{form[:100]}`"
    if all(map(_is_requirement, filter(None, re.split("[ ,]", text)))):
        return "write each package on a line of its own"
    return "for example `torch==2.13.0`, or `numpy>=1.26,<3`"


def _is_requirement(text: str) -> bool:
    try:
        requirement = Requirement(text.partition(" --")[0])  # behind it are options, as its hash
    except InvalidRequirement:
        return False
    return requirement.url is None


def _likely_forms(text: str) -> Iterator[str]:
    """What may have been meant by a line that is not a requirement."""
    for turned, operator in _TURNED.items():
        yield text.replace(turned, operator)
    if match := _CONDAS.match(text) or _NAME_AND_VERSION.match(text):
        yield f"{match[1]}=={match[2]}"
    yield _LONE_EQUALS.sub("==", text, count=1)
    yield _COMPATIBLE_WITH_ONE.sub(r"\1.0", text)
    yield _LONE_TILDE.sub("~=", text, count=1)
    yield _ANY.sub(".*", text, count=1)
    yield _NO_COMMA.sub(r"\1,\2", text, count=1)
    for beginning in ("pip install ", "pip3 install ", "python -m pip install "):
        yield text.removeprefix(beginning)
