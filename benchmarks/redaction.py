"""A log through the shipper, its secrets masked, beside the same log copied.

python benchmarks/redaction.py [--rounds 5]

Every case reads a log file of 64 MB in the shipper's own chunks and hands each on; the server and
the network are left out, so that the figures are what masking costs.
"""

from __future__ import annotations

import argparse
import secrets
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from figures import Case, compare

from torchyard.shared import secret_values
from torchyard.shared.masking import TOKENS, Masker
from torchyard.worker.files.logs import LogShipper

SIZE_MB = 64
LINE = b"2026-11-21 09:22:01,123 INFO epoch 3 step %07d loss 0.123456 lr 3.0e-04 12345.6 img/s\n"


class NoServer:
    """Takes every chunk at once."""

    def send(self, method: str, path: str, content: bytes, query: Mapping[str, Any]) -> Any:
        return {"size": query["offset"] + len(content)}


class Unmasked(Masker):
    """Looks at nothing."""

    def mask(self, data: bytes) -> bytes:
        return data

    def unfinished(self, data: bytes) -> int:
        return 0


def make_log(file: Path) -> None:
    with open(file, "wb") as log:
        step = 0
        while log.tell() < SIZE_MB * 1_000_000:
            log.write(b"".join(LINE % number for number in range(step, step + 1000)))
            step += 1000


def masker(values: int) -> Masker:
    made = {secrets.token_urlsafe(30): secret_values.SHORTEST_MARKED for _ in range(values)}
    return Masker(secret_values.written(made))


def ship(file: Path, masker: Masker) -> dict[str, float]:
    shipper = LogShipper(NoServer(), file.parent, masker)  # type: ignore[arg-type]
    shipper.watch(file, "log")
    started = time.monotonic()
    assert shipper.finish(600)
    return {"mb_per_s": file.stat().st_size / 1e6 / (time.monotonic() - started)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "log")
        make_log(file)
        cases = [
            Case("masked: tokens and 1 secret", partial(ship, file, masker(1))),
            Case("masked: tokens and 5 secrets", partial(ship, file, masker(5))),
            Case("masked: tokens and 20 secrets", partial(ship, file, masker(20))),
            Case("masked: tokens alone", partial(ship, file, TOKENS)),
            Case("not masked", partial(ship, file, Unmasked())),
        ]
        compare(f"a log of {SIZE_MB} MB", cases, arguments.rounds)


if __name__ == "__main__":
    main()
