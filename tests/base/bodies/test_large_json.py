"""Large JSON parses as small JSON does."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import pytest

from torchyard.base.bodies import large_json

_PAD = " " * (300 << 10)  # beyond the size up to which `json.loads` does it


@pytest.mark.parametrize(
    "value",
    [[], {}, "a", 5, -1.5e3, None, True, [[[[1, {"a": [2]}]]]], {"a": {"b": {"c": [1, 2, {}]}}},
     {"files": [{"path": "a/b", "size": 1}, {"path": 'q"[{,', "size": 2}]},
     [1, "é", "😀"],
     {"": [], " ": {}, "x": [[], {}, [None, False]]}, [{"a": 1}, [2], "[", "]"]],
)  # fmt: skip
@pytest.mark.parametrize("indent", [None, 1])
def test_documents(value: Any, indent: int | None) -> None:
    for text in (json.dumps(value, indent=indent), json.dumps(value, ensure_ascii=False)):
        content = f"\n\t{text}{_PAD}\r".encode("utf-8", "surrogatepass")
        assert large_json.loads(content) == json.loads(content)
        assert large_json.loads(text.encode("utf-16") + _PAD.encode("utf-16-le")) == value


def test_numbers_that_are_none_and_repeated_names() -> None:
    text = '{"a": 1, "a": [NaN, Infinity], "b": -Infinity}' + _PAD
    assert repr(large_json.loads(text.encode())) == "{'a': [nan, inf], 'b': -inf}"


@pytest.mark.parametrize(
    "text", ["", "[", "{", "[1", "[1,", "[1,]", "[1 2]", "]", "{1: 2}", '{"a"}', '{"a" 1}',
             '{"a":}',
             '{"a": 1,}', '{"a": 1 "b": 2}', "[] []", "nul", '"a', "[[1,]]", '{"a": [1}', "{,}",
             "[,]", '{"a": 1]'],
)  # fmt: skip
def test_what_is_no_json(text: str) -> None:
    content = (text + _PAD).encode()
    with pytest.raises(ValueError):
        json.loads(content)
    with pytest.raises(ValueError):
        large_json.loads(content)


def test_a_byte_order_mark_is_no_part_of_it() -> None:
    content = ("\ufeff[1]" + _PAD).encode()
    assert large_json.loads(content) == json.loads(content) == [1]


def test_what_is_no_text() -> None:
    with pytest.raises(ValueError):
        large_json.loads(b'["\xff\xfe' + b"a" * (300 << 10) + b'"]')


def test_deep_nesting() -> None:
    depth = 200_000
    with pytest.raises(RecursionError):
        large_json.loads(b"[" * depth + b"]" * depth)


def test_another_thread_goes_on_meanwhile() -> None:
    entry = json.dumps({"path": "a" * 40, "sha256": "0" * 64, "size": 1}).encode()
    content = b'{"files": [' + b",".join([entry] * 60_000) + b"]}"
    steps = 0
    parsing = threading.Thread(target=large_json.loads, args=(content,))

    parsing.start()
    while parsing.is_alive():
        steps += 1
        time.sleep(0)  # gives the lock away
    parsing.join()
    # `json.loads` would leave this thread a step before and one after.
    assert steps > 5, sys.getswitchinterval()
