"""Dockerfiles, read as far as needed around a build.

Owns: the images of FROM lines, replacing them, which one the result starts from, which step of a
build failed.
Leaves: everything else in a Dockerfile to the container engine.
Always: what is not a FROM line stays as it was written, byte by byte.

Source: https://docs.docker.com/reference/dockerfile/ (parser directives, continued lines,
here-documents, ARG before FROM).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_DIRECTIVE = re.compile(r"#\s*escape\s*=\s*(?P<sign>[\\`])\s*\Z", re.IGNORECASE)
_HEREDOC = re.compile(r"<<-?\s*(?P<quote>[\"']?)(?P<word>\w+)(?P=quote)")
_ARG = re.compile(r"ARG\s+(?P<rest>.*)\Z", re.IGNORECASE | re.DOTALL)
_FROM = re.compile(
    r"FROM\s+(?P<flags>(?:--\S+\s+)*)(?P<image>\S+)(?:\s+AS\s+(?P<stage>\S+))?\s*\Z", re.IGNORECASE
)
_VARIABLE = re.compile(r"\$(?:\{(?P<braced>\w+)(?::-(?P<default>[^{}]*))?\}|(?P<plain>\w+))")
_LONGEST_VALUE = 500


@dataclass(frozen=True)
class From:
    """One FROM line that names an image from outside the file.

    `start` and `end` are the physical lines that it takes, counted from 0; `name` is the image
    with the defaults of the ARGs before it filled in.
    """

    start: int
    end: int
    flags: str
    name: str
    stage: str


def images(text: str) -> list[From]:
    """The images that a Dockerfile starts from, in order, without stages and `scratch`."""
    return [line for line, is_stage in _from_lines(text) if not is_stage]


def final_base(text: str) -> str:
    """The name of the image that the last stage starts from, maybe through others; may be empty."""
    origins: dict[str, str] = {}
    origin = ""
    for number, (line, is_stage) in enumerate(_from_lines(text)):
        origin = origins.get(line.name.lower(), "") if is_stage else line.name
        for stage in (line.stage, str(number)):
            origins[stage.lower()] = origin
    return origin


def _from_lines(text: str) -> list[tuple[From, bool]]:
    """Each FROM line, and whether it names an earlier stage or nothing (`scratch`)."""
    from_lines: list[tuple[From, bool]] = []
    stages: set[str] = set()
    defaults: dict[str, str] = {}
    for start, end, instruction in _instructions(text.splitlines()):
        argument = _ARG.match(instruction)
        if argument and not stages and not from_lines:
            for name, _, value in (word.partition("=") for word in argument["rest"].split()):
                defaults[name] = _substituted(value.strip("\"'"), defaults)
        line = _FROM.match(instruction)
        if line is None:
            continue
        name = _substituted(line["image"].strip("\"'"), defaults)
        is_stage = name.lower() in stages or name.lower() == "scratch"
        from_lines.append((From(start, end, line["flags"], name, line["stage"] or ""), is_stage))
        # A stage without a name also ends the ARGs before FROM.
        stages.add((line["stage"] or "").lower())
    return from_lines


def with_images(text: str, others: Mapping[str, str]) -> str:
    """The Dockerfile with images replaced; the keys of `others` are names as in `images`."""
    lines = text.splitlines(keepends=True)
    for line in reversed(images(text)):
        if line.name in others:
            stage = f" AS {line.stage}" if line.stage else ""
            lines[line.start : line.end] = [f"FROM {line.flags}{others[line.name]}{stage}\n"]
    return "".join(lines)


_STEPS = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        # podman and buildah, in the error and in progress lines; docker's two builders.
        r"building at STEP \"(?P<step>(?:[^\"\\]|\\.)+)\"",
        r"^[ \t]*> \[[^\]\n]*\d/\d+\] (?P<step>.+)$",
        r"^(?:\[\d+/\d+\] )?STEP \d+/\d+: (?P<step>.+)$",
        r"^Step \d+/\d+ : (?P<step>.+)$",
    )
)
_PACKAGES = tuple(
    re.compile(pattern)
    for pattern in (
        r"No matching distribution found for (?P<name>[\w.-]+)",
        r"Could not find a version that satisfies the requirement (?P<name>[\w.-]+)",
        r"Failed (?:to build|building wheel for) (?P<name>[\w.-]+)",
        r"Because (?P<name>[\w.-]+) was not found in the package registry",
        r"E: Unable to locate package (?P<name>[\w.+-]+)",
    )
)


def failed_step(words: str) -> str:
    """The instruction that failed, from the builder's output; may be empty."""
    for pattern in _STEPS:
        steps = pattern.findall(words)
        if steps:
            return " ".join(str(steps[-1]).replace('\\"', '"').split()).removesuffix(":")
    return ""


def missing_package(words: str) -> str:
    """The package that pip, uv or apt could not install in a build; empty for other failures."""
    for pattern in _PACKAGES:
        match = pattern.search(words)
        if match:
            return match["name"]
    return ""


def _instructions(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """(first line, line after the last, the instruction on one line) of each instruction."""
    sign, at = "\\", 0
    while at < len(lines) and lines[at].lstrip().startswith("#"):
        directive = _DIRECTIVE.match(lines[at].strip())
        sign = directive["sign"] if directive else sign
        at += 1
    while at < len(lines):
        start = at
        parts: list[str] = []
        while at < len(lines):
            line = lines[at].strip()
            at += 1
            if line.startswith("#") or (not line and parts):
                continue  # comments and blank lines may interrupt a continued line
            parts.append(line.rstrip(sign).rstrip() if line.endswith(sign) else line)
            if not line.endswith(sign):
                break
        instruction = " ".join(parts).strip()
        if not instruction:
            continue
        yield start, at, instruction
        if re.match(r"(RUN|COPY|ADD)\b", instruction, re.IGNORECASE):
            for heredoc in _HEREDOC.finditer(instruction):
                while at < len(lines) and lines[at].strip() != heredoc["word"]:
                    at += 1
                at += 1


def _substituted(text: str, values: Mapping[str, str]) -> str:
    """Up to the length of any image's name: values that name others would grow without end."""

    def value(match: re.Match[str]) -> str:
        name = match["braced"] or match["plain"]
        return values.get(name) or match["default"] or ""

    return _VARIABLE.sub(value, text[:_LONGEST_VALUE])[:_LONGEST_VALUE]
