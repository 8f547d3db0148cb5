"""YAML of requests: documents, and the limits of what a text may stand for."""

from __future__ import annotations

import pytest

import steps
from torchyard.base.bodies import yaml_documents
from torchyard.base.errors import InvalidInput

LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
MERGES = "a0: &a0 {x: 1, y: 2}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12)
)


def test_a_document_is_read_with_its_aliases() -> None:
    text = "base: &base {a: 1}\nother: {<<: *base, b: [x, 2024-01-02]}\n"
    document = yaml_documents.load(text, "the file")
    assert document["other"]["a"] == 1
    assert yaml_documents.load("", "the file") is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [", "is not YAML"),
        ("a: b: c", "is not YAML"),
        ("--- 1\n--- 2\n", "is not YAML"),
        ("a: &a [*a]", "contains itself"),
        ("a: 2024-99-99", "is not YAML"),
        ("a: " + "9" * 5_000, "is not YAML"),
        ("[" * 51 + "]" * 51, "nested more than 50 deep"),
        ("[" * 100_000, "nested more than 50 deep"),
        ("- " * 60 + "a", "nested more than 50 deep"),
        (LAUGHS, "more than 50000 values"),
        (MERGES, "more than 50000 values"),
        ("a" * 300_000, "characters long; the limit is 262144"),
    ],
    ids=lambda text: text[:20],
)
def test_a_text_beyond_the_limits_is_refused_soon(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        steps.at_most(20_000_000, lambda: yaml_documents.load(text, "the file"))
