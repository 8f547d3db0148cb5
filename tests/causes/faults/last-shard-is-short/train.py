import math
import os
import time

RANK, WORLD_SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
BATCH = 10


def shard(rows):
    size = math.ceil(len(rows) / WORLD_SIZE)
    return rows[RANK * size : (RANK + 1) * size]


def train_step(batch):
    assert len(batch) == BATCH  # here
    time.sleep(0.05)
    return sum(batch) / BATCH


def main():
    rows = shard([index % 7 for index in range(998)])
    for step, start in enumerate(range(0, len(rows), BATCH)):
        loss = train_step(rows[start : start + BATCH])
        print(f"rank {RANK} step {step} loss {loss:.2f}", flush=True)


main()
