import json
import os
import time
from pathlib import Path


class Trainer:
    def __init__(self, config, rank):
        self.config = config
        self.weight, self.gradient = 0.0, 0.0
        self.batches = [(x / 40, 3 * x / 40 + rank) for x in range(config["batches"])]

    def epoch(self):
        losses = []
        self.gradient = 0.0
        for number, (x, y) in enumerate(self.batches, 1):
            error = self.weight * x - y
            losses.append(error**2)
            self.gradient += 2 * error * x / self.config["accumulate"]
            if number % self.config["accumulate"] == 0:
                self.weight -= self.config["lr"] * self.gradient
                self.gradient = 0.0
        return sum(losses) / len(losses)


def main():
    config = json.loads(Path("config.json").read_text())
    trainer = Trainer(config, int(os.environ["RANK"]))
    for epoch in range(config["epochs"]):
        loss = trainer.epoch()
        time.sleep(0.06)
        print(f"epoch {epoch} loss {loss:.5f}", flush=True)


if __name__ == "__main__":
    main()
