"""Find in a shell's command where a step that failed stands, and whether its failure is handled.

Owns: dividing a command into lists (`a && b || c`), pipes (`a | b`) and steps.
Leaves: recording failures to launch/failed_commands.py, telling of them to
diagnosis/hidden_failures.py.
Always: what can't be found for certain counts as handled, so nothing wrong is told. What stands in
parentheses is left out: the shell that records does not look into them either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_OPERATOR = re.compile(r"&&|\|\||\|&|\||;;|;|\n|(?<![<>&])&(?![>&])|\\\n")
QUOTED_OR_COMMENT = re.compile(r"\\[^\n]|'[^']*'|\"(?:\\.|[^\"\\])*\"|(?<!\S)#[^\n]*", re.DOTALL)
_CONTINUING = ("&&", "||", "|", "|&")
_CONDITIONS = ("if", "elif", "while", "until", "!")
_OPENING = ("then", "do", "else", "{", "time")
_CLOSING = ("then", "do", "}", "fi", "done", "esac")


@dataclass(frozen=True)
class Step:
    """One program with its arguments, as it is written; `operator` is what stands behind it."""

    line: int
    text: str
    operator: str

    @property
    def words(self) -> list[str]:
        words = self.text.split()
        while words and words[0] in _OPENING:
            words.pop(0)
        return words

    @property
    def command(self) -> str:
        return " ".join(self.words)


@dataclass(frozen=True)
class Pipe:
    """The steps of one pipe, most often a single one."""

    steps: tuple[Step, ...]

    @property
    def operator(self) -> str:
        return self.steps[-1].operator


def passed_over(command: str, codes: Sequence[int], line: int, last: str) -> list[tuple[Step, int]]:
    """The steps of a pipe or list that failed and that nothing handled, each with its exit code.

    Args:
        codes: the exit codes of the pipe's steps; a single one for what isn't a pipe.
        line: where the last step stands.
        last: the last step, as the shell prints it.
    """
    lists = list(_lists(command))
    positions = [
        (index, position)
        for index, pipes in enumerate(lists)
        for position, pipe in enumerate(pipes)
        if len(pipe.steps) == len(codes)
        and pipe.steps[0].line <= line <= pipe.steps[-1].line
        and _is_same(pipe.steps[-1], last)
    ]
    if len(positions) != 1:
        return []
    ((index, position),) = positions
    pipes = lists[index]
    following = lists[index + 1] if index + 1 < len(lists) else []
    if _is_handled(pipes, position, following):
        return []
    steps = pipes[position].steps
    if len(codes) == 1:
        return [(steps[0], codes[0])] if pipes[position].operator == "&&" else []
    return [
        (step, code)
        for step, code in zip(steps[:-1], codes[:-1], strict=True)
        if code and step.words[:1] and step.words[0] not in _CLOSING  # a group's end
    ]


def ends_in_pipe(command: str) -> bool:
    """Whether the last list is a pipe at whose end another line can be added."""
    lists = [] if "<<" in command or command.endswith("\\") else list(_lists(command))
    return bool(lists) and any(len(pipe.steps) > 1 for pipe in lists[-1])


def _is_handled(pipes: Sequence[Pipe], position: int, following: Sequence[Pipe]) -> bool:
    first = pipes[0].steps[0].words[:1]
    if (first and first[0] in _CONDITIONS) or pipes[position].steps[0].words[:1] == ["!"]:
        return True
    if any(pipe.operator == "||" for pipe in pipes[position:]):
        return True
    if not following:
        return False
    opening = following[0].steps[0].text.split()[:1]
    if opening and opening[0] in _CLOSING:
        # A condition of several lists ends here, or a group with a handler of its own.
        return opening[0] in ("then", "do") or following[0].operator in ("||", "&&")
    text = following[0].steps[0].text
    return "$?" in text or "PIPESTATUS" in text


def _is_same(step: Step, printed: str) -> bool:
    """Whether the shell prints the step so: with other white space, and with redirections moved."""
    return _letters(step.command).startswith(_letters(printed)[:40]) or (
        step.words[:1] == printed.split()[:1]
    )


def _letters(text: str) -> str:
    return "".join(text.split())


def _lists(command: str) -> Iterator[list[Pipe]]:
    bare = _blank_parentheses(QUOTED_OR_COMMENT.sub(_blank, command))
    pipes: list[Pipe] = []
    steps: list[Step] = []
    start = 0
    for end, operator in [*_operators(bare), (len(bare), "\n")]:
        text, bare_text = command[start:end], bare[start:end]
        line = command.count("\n", 0, start + len(text) - len(text.lstrip(" \t\\\n"))) + 1
        start = end + len(operator)
        if not bare_text.strip(" \t\\\n"):
            continue  # an empty line, or what goes on in the next line
        steps.append(Step(line, text.replace("\\\n", " ").strip(), operator))
        if operator not in ("|", "|&"):
            pipes.append(Pipe(tuple(steps)))
            steps = []
        if operator not in _CONTINUING:
            yield pipes
            pipes = []


def _operators(bare: str) -> Iterator[tuple[int, str]]:
    for match in _OPERATOR.finditer(bare):
        if match[0] != "\\\n":
            yield match.start(), match[0]


def _blank_parentheses(text: str) -> str:
    characters = []
    depth = 0
    for character in text:
        depth += character == "("
        is_inside = depth > 0 and character != "\n"
        characters.append("." if is_inside else " " if depth > 0 else character)
        depth = max(0, depth - (character == ")"))
    return "".join(characters)


def _blank(match: re.Match[str]) -> str:
    """As long, and without anything that the shell reads."""
    filler = " " if match[0].startswith("#") else "."
    return "".join(filler if character != "\n" else "\n" for character in match[0])
