"""The size of a chunk, of a body that says `Transfer-Encoding: chunked`.

Owns: what counts as one.
Always: a size that another reader of the same bytes could take for another one is refused: Python's
`int` reads `0x5`, `+5`, `5_0` and ` 5`, too.

Source: https://www.rfc-editor.org/rfc/rfc9112#section-7.1
"""

from __future__ import annotations

import re

# Without what follows a `;`, and with the end of the line or not.
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?(?:\r?\n)?")


def size_bytes(line: bytes) -> int:
    """
    Raises:
        ValueError: it is not a line with hexadecimal digits.
    """
    match = _SIZE.fullmatch(line)
    if match is None:
        raise ValueError("a malformed size of a chunk")
    return int(match[1], 16)
