"""Which variables are secret, and every way their values are commonly written.

Owns: names that give a secret away, how short a value is left alone, encodings.
Leaves: finding the values in text to masking.py, how a job marks a variable to
jobs/spec/secrets.py.
Always: standard library alone; what is not listed here (compression, one character a line,
encryption) is not recognised, and the guide says so.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterator, Mapping
from urllib.parse import quote, quote_plus

HIDDEN = "*****"
"""Stands in answers for the value of a secret."""
LEFT_OUT = "(left out of a backup)"
"""Stands in a restored document for the value of a secret."""
SHORTEST_MARKED = 4
"""Characters. A shorter value that is marked is refused when the job is created."""
SHORTEST_NAMED = 8
"""Characters. A shorter value of a name that only looks secret is left alone."""

_SHORTEST_ENCODED = 8
# A longer value is looked for in pieces, so that little is held back at the end of a chunk.
_PIECE_BYTES = 768
_OVERLAP_BYTES = 8
_LINE_WIDTHS = (64, 76)
_NAMED = re.compile(
    r"(^|_)(TOKEN|PASSWORD|PASSWD|PASSPHRASE|PASS|PWD|KEY|APIKEY|CREDENTIALS?|SAS|DSN)\Z"
    r"|SECRET|PASSWORD|_TOKEN_|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CONNECTION_?STRING",
    re.IGNORECASE,
)
# What they hold is a path, a folder or a number on every machine.
_NEVER = ("PWD", "OLDPWD")
_ESCAPED_BYTE = re.compile(r"%[0-9A-F]{2}")


def looks_secret(name: str) -> bool:
    """Whether a variable's name alone says that its value is a secret."""
    return name not in _NEVER and _NAMED.search(name) is not None


def of_environment(
    variables: Mapping[str, str], marked: Collection[str], plain: Collection[str] = ()
) -> dict[str, int]:
    """The secret values among the variables, and how short a part of each is still masked.

    Args:
        marked: names that are secret whatever they look like.
        plain: names that are not.
    """
    lengths: dict[str, int] = {}
    for name, value in variables.items():
        if name in marked and len(value) >= SHORTEST_MARKED:
            lengths[value] = SHORTEST_MARKED
        elif name not in plain and len(value) >= SHORTEST_NAMED and looks_secret(name):
            lengths.setdefault(value, SHORTEST_NAMED)
    return lengths


def written(values: Mapping[str, int]) -> set[bytes]:
    """Every form in which one of the values may stand in text.

    Args:
        values: each with the characters that a line of it needs to be looked for.
    """
    forms: set[bytes] = set()
    for value, shortest in values.items():
        for line in value.splitlines() or [value]:
            line = line.strip() if len(line.strip()) >= shortest else ""
            for piece in _pieces(line):
                forms.update(form for form in _escaped(piece) if len(form) >= shortest)
        forms.update(form for form in _encoded(value) if len(form) >= _SHORTEST_ENCODED)
    return forms


def _pieces(text: str) -> Iterator[str]:
    """A long text in pieces that overlap, so that none of it lies between two."""
    if not text:
        return
    start = 0
    while len(text) - start > _PIECE_BYTES:
        yield text[start : start + _PIECE_BYTES]
        start += _PIECE_BYTES - _OVERLAP_BYTES
    yield text[start:] if start == 0 else text[max(0, len(text) - _PIECE_BYTES) :]


def _escaped(text: str) -> Iterator[bytes]:
    """As it is, and as URLs, JSON, Python, HTML and shells write it."""
    forms = {text}
    for url in (quote(text, safe=""), quote(text), quote(text, safe="~()*!.'"), quote_plus(text)):
        forms.add(url)
        forms.add(_ESCAPED_BYTE.sub(lambda match: match[0].lower(), url))
    for as_json in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
        forms.update((as_json, as_json.replace("/", "\\/"), json.dumps(as_json)[1:-1]))
    forms.update((repr(text)[1:-1], ascii(text)[1:-1], text.replace("\\", "\\\\")))
    forms.update((repr("'\"" + text)[4:-1], repr(text.encode("utf-8", "replace"))[2:-1]))
    as_html = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    forms.add(as_html)
    for double, single in (("&quot;", "&#x27;"), ("&#34;", "&#39;"), ("&quot;", "&apos;")):
        forms.add(as_html.replace('"', double).replace("'", single))
    # bash: `set -x`, shlex.quote, `export -p`, `printf %q`
    forms.update((text.replace("'", "'\\''"), text.replace("'", "'\"'\"'")))
    forms.add(re.sub(r'([$`"\\!])', r"\\\1", text))
    forms.add(re.sub(r'([$`"\\])', r"\\\1", text))
    forms.add(re.sub(r"([^\w@%+=:,./-])", r"\\\1", text, flags=re.ASCII))
    for form in forms:
        yield form.encode("utf-8", "surrogateescape")


def _encoded(value: str) -> Iterator[bytes]:
    """In base64, wherever in the encoded text it begins, and in hexadecimal digits."""
    data = value.encode("utf-8", "surrogateescape")
    for ending in (b"", b"\n"):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            alone = encode(data + ending)
            if len(alone) <= _PIECE_BYTES:
                yield alone
            for width in _LINE_WIDTHS:
                if len(alone) > width:
                    yield from (alone[at : at + width] for at in range(0, len(alone), width))
    if not data.strip():
        return
    step = _PIECE_BYTES - _OVERLAP_BYTES
    for at in range(0, max(1, len(data) - _OVERLAP_BYTES), step):
        piece = data[at : at + _PIECE_BYTES]
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            for shift in range(3):
                # Digits that hold bits of a neighbour are left out: they may be any.
                digits = encode(b"\0" * shift + piece)
                yield digits[-(-shift * 8 // 6) : (shift + len(piece)) * 8 // 6]
        yield piece.hex().encode()
        yield piece.hex().upper().encode()
