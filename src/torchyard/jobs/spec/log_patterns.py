"""Users' patterns, looked for in what ranks printed.

Owns: the process that looks, and how long it may.
Leaves: which patterns and which text to attempts/endings.py, what follows to retry.py.
Always: a pattern that would search for ever, as `(a+)+$` can, holds up nobody: it is looked for by
a process of its own, and counts as not found when the time is over.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

_LIMIT_S = 10.0
# Says each that it has found at once: one that is interrupted takes none of the others with it.
_PROGRAM = """
import json, re, sys
asked = json.load(sys.stdin)
for number, pattern in enumerate(asked["patterns"]):
    if re.search(pattern, asked["text"], re.MULTILINE):
        print(number, flush=True)
"""


def found(patterns: Sequence[str], text: str, limit_s: float = _LIMIT_S) -> frozenset[str]:
    """Those of `patterns` that `text` has; those behind one that takes too long are not looked for.

    Args:
        limit_s: for all of them together.
    """
    request = json.dumps({"patterns": list(patterns), "text": text})
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM]
    try:
        output = subprocess.run(
            command, input=request.encode(), capture_output=True, timeout=limit_s, check=False
        ).stdout
    except subprocess.TimeoutExpired as late:
        output = late.stdout or b""
    return frozenset(patterns[int(number)] for number in output.split())
