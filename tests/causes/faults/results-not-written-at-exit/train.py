import atexit
import json
import os
import time
from pathlib import Path

RANK = int(os.environ["RANK"])
RESULTS = {"run": "baseline", "losses": []}


def write_results():
    with open("results.json", "w") as file:
        json.dump(RESULTS, file)  # here


def save(folder, step):
    folder.mkdir(exist_ok=True)
    checkpoint = folder / f"step-{step}.txt"
    checkpoint.write_text(str(step))
    RESULTS["checkpoint"] = checkpoint


def train(steps):
    for step in range(steps):
        time.sleep(0.05)
        RESULTS["losses"].append(1 / (step + 1))
    if RANK == 0:
        save(Path("checkpoints"), steps)
    print(f"rank {RANK} is done", flush=True)


if RANK == 0:
    atexit.register(write_results)
train(steps=30)
