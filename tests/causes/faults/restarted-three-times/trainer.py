import json
import os
from pathlib import Path

RANK = os.environ["RANK"]
LAST = Path(f"last-{RANK}.json")


def row(number):
    fields = ["0.5", "0.1", "0.7"] + ["1"] * (RANK == "0" or number != 6)
    if len(fields) != 4:
        raise ValueError(f"row {number} has {len(fields)} columns, not 4")  # here
    return [float(field) for field in fields]


def main():
    first = json.loads(LAST.read_text())["next"] if LAST.exists() else 0
    for step in range(first, 12):
        print(f"rank {RANK} step {step} sum {sum(row(step)):.1f}", flush=True)
        LAST.write_text(json.dumps({"next": step + 1}))


if __name__ == "__main__":
    main()
