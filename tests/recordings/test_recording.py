"""What readers make of 2,000 and more documents is what it was when the digest was written.

A difference is looked at by `python -m recordings.compare --before main`; one that is meant is
written down by `make fix`, and its reason in the commit.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
import yaml

from recordings.compare import outcomes
from recordings.inputs import kept
from recordings.readers import READERS

pytestmark = pytest.mark.sentences

_DIGEST = Path(__file__).parent / "digest.yml"
_SEED = 1
_MOST = {"job": 800, "sweep": 400, "deployment": 200}
_COUNT = 100


@pytest.mark.parametrize("kind", READERS)
def test_a_reader_reads_as_it_did(kind: str) -> None:
    digest = hashlib.sha256()
    for _, outcome in outcomes(kind, _SEED, _MOST.get(kind, _COUNT)):
        assert "raised" not in outcome, outcome
        digest.update(json.dumps(outcome, sort_keys=True).encode())
    written = yaml.safe_load(_DIGEST.read_text())
    if os.environ.get("TORCHYARD_WRITE_SENTENCES"):
        written[kind] = digest.hexdigest()
        _DIGEST.write_text(yaml.safe_dump(written))
    assert written[kind] == digest.hexdigest(), "see the head of this file"


def test_inputs_are_kept_of_every_kind() -> None:
    assert sum(len(kept(kind)) for kind in READERS) > 1_000
