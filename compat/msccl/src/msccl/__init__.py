"""MSCCL's settings as NCCL's own.

Owns: what each variable of MSCCL becomes, and saying it.
Leaves: communication to NCCL.
Always: what isn't MSCCL's is left as it was; it never raises at Python's start.

Sources: https://github.com/microsoft/msccl (MSCCL_XML_FILES, NCCL_ALGO),
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

from __future__ import annotations

import os
import sys
import xml.etree.ElementTree
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

__all__ = ["init", "translate"]

_ALGO = "NCCL_ALGO"
_FILES = "MSCCL_XML_FILES"
_UNREAD = ("MSCCL_ALGO_DIR", "GENMSCCLXML")
# What MSCCL's own documentation sets beside it: all that NCCL had then.
_ALL = {"RING", "TREE"}
_LARGEST = 64 * 1024 * 1024


def translate(variables: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The variables as NCCL understands them, and a sentence for each that changed."""
    result = dict(variables)
    notices = []
    algorithms = [name.strip() for name in result.get(_ALGO, "").split(",") if name.strip()]
    if "MSCCL" in map(str.upper, algorithms):
        remaining = [name for name in algorithms if name.upper() != "MSCCL"]
        if not remaining or {name.upper() for name in remaining} == _ALL:
            del result[_ALGO]
            notices.append(f"{_ALGO}={variables[_ALGO]} is unset: NCCL chooses from all it has")
        else:
            result[_ALGO] = ",".join(remaining)
            notices.append(f"{_ALGO}={variables[_ALGO]} becomes {_ALGO}={result[_ALGO]}")
    if _FILES in result:
        files = [name for name in result.pop(_FILES).split(":") if name]
        description = "; ".join(f"{name}: {_describe(Path(name))}" for name in files) or "no file"
        notices.append(
            f"{_FILES} is not read ({description}): NCCL's own algorithms run in their place"
        )
    for name in _UNREAD:
        if name in result:
            del result[name]
            notices.append(f"{name} is not read")
    return result, notices


def init(
    machine_type: str | None = None, num_machines: int | None = None, *collectives: Any
) -> None:
    """Translate this process's variables; its children inherit the result.

    Takes what MSCCL's `init` takes; NCCL finds out the machine by itself.
    """
    variables: MutableMapping[str, str] = os.environ
    result, notices = translate(variables)
    for name in set(variables) - set(result):
        del variables[name]
    if _ALGO in result:
        variables[_ALGO] = result[_ALGO]
    for notice in notices:
        print(f"torchyard's msccl: {notice}", file=sys.stderr)


def _describe(file: Path) -> str:
    """The algorithm's name, collective and number of GPUs, as the file says them."""
    try:
        if file.stat().st_size > _LARGEST:
            return "too large to be one"
        root = xml.etree.ElementTree.parse(file).getroot()
    except (OSError, ValueError, xml.etree.ElementTree.ParseError) as error:
        return type(error).__name__
    return f"{root.get('name', '?')}, {root.get('coll', '?')} on {root.get('ngpus', '?')} GPUs"


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"torchyard's msccl has no `{name}`: it serves {', '.join(__all__)}. Algorithms of one's "
        "own need MSCCL itself, which the NCCL of torch is not"
    )
