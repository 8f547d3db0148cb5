import json
import os
import shutil
import time
from pathlib import Path

SCRATCH = Path("scratch")


def predict(rank, rows):
    predictions = []
    for row in range(rows):
        time.sleep(0.05)
        predictions.append(row % 3)
        print(f"rank {rank} row {row}", flush=True)
    return predictions


def main():
    rank = int(os.environ["RANK"])
    SCRATCH.mkdir(exist_ok=True)
    predictions = predict(rank, rows=20 + 30 * rank)
    (SCRATCH / f"predictions-{rank}.json").write_text(json.dumps(predictions))  # here
    if rank == 0:
        time.sleep(0.2)
        shutil.rmtree(SCRATCH)  # here
    print(f"rank {rank} is done", flush=True)


if __name__ == "__main__":
    main()
