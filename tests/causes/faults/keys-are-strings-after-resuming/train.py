import json
import time
from pathlib import Path


class State:
    def __init__(self, path):
        self.path = Path(path)
        self.epoch, self.counts = 0, {0: 1, 1: 1, 2: 1}
        if self.path.exists():
            vars(self).update(json.loads(self.path.read_text()))  # here

    def weight_of(self, label):
        return sum(self.counts.values()) / self.counts[label]  # here


def main():
    state = State("state.json")
    labels = [0, 2, 1, 1, 0, 2]
    for epoch in range(state.epoch, 5):
        weights = [state.weight_of(label) for label in labels]
        time.sleep(0.1)
        print(f"epoch {epoch} weight {sum(weights) / len(weights):.3f}", flush=True)


if __name__ == "__main__":
    main()
