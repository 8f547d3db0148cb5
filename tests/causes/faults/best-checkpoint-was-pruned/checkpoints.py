import json
from pathlib import Path


class Checkpoints:
    def __init__(self, folder, keep=3):
        self.folder, self.keep = Path(folder), keep
        self.folder.mkdir(exist_ok=True)
        self.best, self.best_loss = None, float("inf")

    def save(self, step, weights, loss):
        path = self.folder / f"step-{step:05}.json"
        path.write_text(json.dumps(weights))
        if loss < self.best_loss:
            self.best, self.best_loss = path, loss
        for old in sorted(self.folder.glob("step-*.json"))[: -self.keep]:
            old.unlink()  # here

    def load_best(self):
        return json.loads(self.best.read_text())  # here
