import json
import os
import random
import time
from pathlib import Path

from schedule import LinearDecay


def main():
    config = json.loads(Path("config.json").read_text())
    generator = random.Random(int(os.environ["RANK"]))
    schedule = LinearDecay(config["lr"], config["decay_steps"])
    weight = 0.0
    for step in range(config["epochs"] * config["steps_per_epoch"]):
        target = 3 + generator.uniform(-0.1, 0.1)
        loss = (weight - target) ** 2
        lr = schedule(step)
        weight -= lr * 2 * (weight - target)
        time.sleep(0.02)
        print(f"step {step} loss {loss:.5f} lr {lr:.2e}", flush=True)


if __name__ == "__main__":
    main()
