"""Secrets never leave the node: kinds of secret by ways to print them by ways to cut.

What is looked for is not what the product looks for: the shipped bytes are decoded in every way
at hand, and no run of characters of a secret may show in any of them.
"""

from __future__ import annotations

import base64
import binascii
import html
import itertools
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote_to_bytes, urlencode

import pytest

from torchyard.shared import secret_values
from torchyard.shared.masking import Masker
from torchyard.worker.files import logs as logs_module
from torchyard.worker.files.logs import LogShipper

_ROWS = [
    f"MIIEvQ{row:02d}BADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEA{row:02d}+/xYz7QmP9" for row in range(6)
]
PEM = "\n".join(["-----BEGIN PRIVATE KEY-----", *_ROWS, "-----END PRIVATE KEY-----", ""])
ACCOUNT = json.dumps(
    {"type": "service_account", "private_key_id": "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
     "private_key": PEM, "client_email": "trainer@project.example"},
    indent=2,
)  # fmt: skip
KINDS: dict[str, str] = {
    "token": "hf_QmZxTnVbKcLpRwYsGdJhFkXeWuIoAyBn",
    "password": "c0rrect horse/battery+staple",
    "symbols": "p@$$w0rd!'\"\\<>&%25{}[]#;",
    "unicode": "Pässwörter-für-日本語-🔑",
    "base64 key": "Qw7vdK03yNPdqFmrVxJQMlnEumDEYK2PVzGU61vTSa7JGtvGr3VWFsDz5J7ur/L2TaGQ==",
    "connection": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=kJ8+dd/8Zw9Qq1==;",
    "signature": "?sv=2022-11-02&ss=b&sig=Rk9P%2FbAR%2BbazQUUX%3D&se=2027-01-01T00%3A00%3A00Z",
    "hex": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "short": "x7Q!",
    "long": "".join(f"{n:05d}" + "kZ" for n in range(250)),
    "pem": PEM,
    "account": ACCOUNT,
}


def _in_parts(text: str) -> str:
    return "".join(f"line: {line}\n" for line in text.splitlines())


PLACES: dict[str, Callable[[str], str]] = {
    "alone": lambda value: f"{value}\n",
    "variable": lambda value: f"API_SECRET={value}\n",
    "twice": lambda value: f"<{value}{value}>\n",
    "line by line": _in_parts,
    "json log": lambda value: json.dumps({"msg": "config", "env": {"KEY": value}}) + "\n",
    "raw json": lambda value: json.dumps([value], ensure_ascii=False, indent=1) + "\n",
    "json in json": lambda value: json.dumps(json.dumps({"k": value})) + "\n",
    "python": lambda value: f"environ({{'KEY': {value!r}}})\n",
    "bytes": lambda value: f"{value.encode()!r}\n",
    "url": lambda value: f"GET https://h/p?key={quote(value, safe='')}&x=1 403\n",
    "path": lambda value: f"https://user:{quote(value)}@host/repo.git\n",
    "form": lambda value: urlencode({"grant": "x", "secret": value}) + "\n",
    "plus": lambda value: re.sub("%..", lambda m: m[0].lower(), quote_plus(value)) + "\n",
    "html": lambda value: f"<td>{html.escape(value)}</td>\n",
    "shell": lambda value: f"+ curl -u {shlex.quote(value)}\n",
    "base64": lambda value: base64.b64encode(value.encode()).decode() + "\n",
    "echo | base64": lambda value: base64.encodebytes(value.encode() + b"\n").decode(),
    "basic auth": lambda value: "Basic " + base64.b64encode(f"me:{value}".encode()).decode() + "\n",
    "in a jwt": lambda value: base64.urlsafe_b64encode(f'{{"s":"{value}"}}'.encode()).decode(),
    "hexdump": lambda value: value.encode().hex() + "\n",
    "without an end": lambda value: f"password: {value}",
}
CUTS = ("whole", "each byte", "in the middle", "at the border of a chunk")
# Four characters give too few digits to be told from chance in the middle of encoded text.
_TOO_SHORT = {("short", "basic auth"), ("short", "in a jwt"), ("short", "json in json")}
CASES = [
    (kind, position, cut)
    for kind, position, cut in itertools.product(KINDS, PLACES, CUTS)
    if (kind, position) not in _TOO_SHORT
    and not (cut == "each byte" and len(KINDS[kind]) > 400)
]  # fmt: skip


class MemoryLink:
    """Takes log chunks as the server does, without one."""

    def __init__(self) -> None:
        self.content = bytearray()

    def send(self, method: str, path: str, content: bytes, query: Mapping[str, Any]) -> Any:
        assert query["offset"] == len(self.content)
        self.content += content
        return {"size": len(self.content)}


def _pieces(text: bytes, cut: str, chunk: int) -> Iterator[bytes]:
    if cut == "each byte":
        yield from (text[at : at + 1] for at in range(len(text)))
    elif cut == "in the middle":
        middle = len(text) // 2
        yield from (text[: middle - 3], text[middle - 3 : middle + 2], text[middle + 2 :])
    elif cut == "at the border of a chunk":
        yield b" " * (chunk - 1 - len(text) // 2) + b"\n" + text
    else:
        yield text


def _shipped(tmp_path: Path, masker: Masker, pieces: Iterator[bytes]) -> bytes:
    link = MemoryLink()
    shipper = LogShipper(link, tmp_path, masker)  # type: ignore[arg-type]
    file = tmp_path / "log"
    shipper.watch(file, "log")
    with open(file, "wb", buffering=0) as log:
        for piece in pieces:
            log.write(piece)
            shipper._ship_all(False)
    while shipper._ship_all(True)[1]:
        pass
    assert len(link.content) == file.stat().st_size
    return bytes(link.content)


def _views(data: bytes) -> Iterator[bytes]:
    """The data, and what it may decode to."""
    yield data
    yield unquote_to_bytes(data.replace(b"+", b" "))
    yield unquote_to_bytes(data)
    text = data.decode("utf-8", "replace")
    yield html.unescape(text).encode()
    unescaped = data
    for _ in range(3):
        unescaped = re.sub(rb"\\u([0-9a-fA-F]{4})", _character, unescaped)
        unescaped = re.sub(rb"\\x([0-9a-f]{2})", lambda m: bytes([int(m[1], 16)]), unescaped)
        unescaped = re.sub(rb"\\n", b"\n", unescaped)
        unescaped = re.sub(rb"\\(.)", rb"\1", unescaped)
        yield unescaped
    yield data.replace(b"'\"'\"'", b"'").replace(b"'\\''", b"'")
    for run in re.findall(rb"[A-Za-z0-9+/_-]{6,}", data.replace(b"\n", b"")):
        for start in range(4):
            digits = run[start:].replace(b"-", b"+").replace(b"_", b"/")
            yield base64.b64decode(
                digits[: len(digits) - 1] + b"A" * 4
                if len(digits) % 4 == 1
                else digits + b"A" * (-len(digits) % 4)
            )
    for run in re.findall(rb"[0-9a-fA-F]{8,}", data):
        for start in range(2):
            yield binascii.unhexlify(run[start : start + (len(run) - start) // 2 * 2])


def _character(match: re.Match[bytes]) -> bytes:
    return chr(int(match[1], 16)).encode("utf-8", "replace")


def _fragments(secret: str) -> set[bytes]:
    """Runs of eight characters show the secret; a line shorter than that is none by itself."""
    lines = [line.strip() for line in secret.splitlines()]
    size = min(8, len(secret))
    step = 1 if len(secret) < 200 else 3
    return {
        line[at : at + size].encode()
        for line in lines
        for at in range(0, len(line) - size + 1, step)
    }


def leaks(shipped: bytes, secret: str) -> list[bytes]:
    expected = _fragments(secret)
    return sorted({value for view in set(_views(shipped)) for value in expected if value in view})


def test_the_corpus_is_large_enough() -> None:
    assert len(CASES) >= 200


@pytest.mark.parametrize("kind", KINDS)
def test_no_secret_of_the_corpus_leaks(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Chunks of 64 KiB instead of 1 MiB: the same code, and the test ends sooner.
    chunk = 1 << 16
    monkeypatch.setattr(logs_module, "_CHUNK_BYTES", chunk)
    secret = KINDS[kind]
    variables = {"MINE": secret}
    values = secret_values.of_environment(variables, ["MINE"])
    masker = Masker(secret_values.written(values))
    leaked = []
    for number, (_, position, cut) in enumerate(case for case in CASES if case[0] == kind):
        printed = b"before\n" + PLACES[position](secret).encode()
        folder = tmp_path / str(number)
        folder.mkdir()
        shipped = _shipped(folder, masker, _pieces(printed, cut, chunk))
        assert shipped.count(b"before\n") == 1
        if cut == "whole":  # the detector sees what is not masked, or it would prove nothing
            assert leaks(printed, secret), position
        leaks_found = leaks(shipped, secret)
        if leaks_found:
            leaked.append((position, cut, leaks_found[:3], shipped[-300:]))
    assert not leaked


def test_names_that_look_secret_do_so_without_being_marked() -> None:
    secret = ["HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "DB_PASSWORD",
              "AZURE_STORAGE_CONNECTION_STRING", "password", "GITHUB_PAT_TOKEN", "SENTRY_DSN",
              "AZURE_CLIENT_SECRET", "STORAGE_SAS"]  # fmt: skip
    plain = ["PATH", "PWD", "OLDPWD", "KEYBOARD", "TOKENIZERS_PARALLELISM", "MONKEY", "HOME",
             "CUDA_VISIBLE_DEVICES", "KEYS_FILE", "PASSENGERS", "LOG_KEYWORDS"]  # fmt: skip
    assert [name for name in secret if not secret_values.looks_secret(name)] == []
    assert [name for name in plain if secret_values.looks_secret(name)] == []


def test_short_values_are_masked_only_when_marked() -> None:
    variables = {
        "DB_PASSWORD": "abc1234",
        "PIN": "1234",
        "SORT_KEY": "customer_id",
        "X": "longer than",
    }
    assert secret_values.of_environment(variables, []) == {"customer_id": 8}
    assert secret_values.of_environment(variables, ["PIN"], ["SORT_KEY"]) == {"1234": 4}


def test_masking_of_secrets_does_not_depend_on_the_cut() -> None:
    secrets = [b"abcabcabd", b"bcab", b"dddd", b"\xc3\xa4\xc3\xb6"]
    masker = Masker(secrets)
    data = b"xx abcabcabcabd bcabcab dddddd abcabcab\xc3\xa4\xc3\xb6 bca"
    masked = masker.mask(data)
    longest = masker.longest
    for cut in range(len(data)):
        first = masker.mask(data[: cut + longest - 1])[:cut]
        start = max(0, cut - longest + 1)
        assert first + masker.mask(data[start:])[cut - start :] == masked
        held_bytes = masker.unfinished(data[:cut])
        # What is sent of the part is what the whole shows there.
        assert masker.mask(data[:cut])[: cut - held_bytes] == masked[: cut - held_bytes]
