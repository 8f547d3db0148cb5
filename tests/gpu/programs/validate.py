"""Run the workloads of the named folder as a validation's job does; the answer is its lines."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path


def main(folder: str) -> None:
    rank = os.environ["RANK"]
    if os.environ["WORLD_SIZE"] == "1" and "--alone" in sys.argv:
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR"):
            del os.environ[name]
    layers = Path(__file__).parents[3] / "compat" / "torch-ort" / "src"
    sys.path[:0] = [folder, str(layers)]
    os.chdir(folder)
    importlib.import_module("torchyard_validation.main").main()
    lines = Path(f"outputs/validation/rank-{rank}.jsonl").read_text().splitlines()
    Path(os.environ["ANSWER"]).write_text(f"[{','.join(lines)}]")


if __name__ == "__main__":
    main(sys.argv[1])
