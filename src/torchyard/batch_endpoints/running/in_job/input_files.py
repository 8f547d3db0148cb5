"""Which files a job scores.

Owns: listing a folder, a file, or what a table's `MLTable` names.
Leaves: bringing the input to the node to the job.
Always: the same input is the same list on every node and in every attempt.
"""

from __future__ import annotations

import fnmatch
import os
import re

TABLE = "MLTable"
_ENTRY = re.compile(r"\s*-\s*(file|folder|pattern)\s*:\s*(.*?)\s*\Z")


class InputFailed(Exception):
    """The input can't be scored; the text says why."""


def find(path: str, input_type: str) -> tuple[str, list[str]]:
    """The folder, and the files by their paths in it.

    Raises:
        InputFailed: no file is there, or the table can't be read.
    """
    if os.path.isfile(path):
        return os.path.dirname(path), [os.path.basename(path)]
    files = _below(path)
    if input_type == "mltable":
        files = _of_table(path, files)
    if not files:
        raise InputFailed("the input has no files: name a folder with files, or a file")
    return path, files


def _below(folder: str) -> list[str]:
    files = []
    seen = {os.path.realpath(folder)}
    for path, folders, names in os.walk(folder, followlinks=True):
        for name in list(folders):
            real = os.path.realpath(os.path.join(path, name))
            if real in seen:
                folders.remove(name)  # a link that leads in a circle
            seen.add(real)
        for name in names:
            files.append(os.path.relpath(os.path.join(path, name), folder))
    return sorted(files)


def _of_table(folder: str, files: list[str]) -> list[str]:
    """The files that the entries of `paths:` name, each once, in the entries' order."""
    try:
        with open(os.path.join(folder, TABLE), encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise InputFailed(f"the table has no file `MLTable`: {error.strerror}") from error
    chosen: list[str] = []
    is_inside = False
    for line in lines:
        if re.match(r"paths\s*:", line):
            is_inside = True
        elif line[:1] not in ("", " ", "\t", "-", "#"):
            is_inside = False
        match = _ENTRY.match(line) if is_inside else None
        if match is None:
            continue
        pattern = os.path.normpath(match.group(2).strip("'\""))
        if match.group(1) == "folder":
            pattern = os.path.join(pattern, "*") if pattern != "." else "*"
        chosen += [each for each in files if each != TABLE and fnmatch.fnmatchcase(each, pattern)]
    return list(dict.fromkeys(chosen))
