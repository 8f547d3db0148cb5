import atexit
import json
from pathlib import Path


class Run:
    """Keeps what a run logs, and writes its summary when the script ends."""

    def __init__(self, name, folder):
        self.folder = Path(folder)
        self.summary = {"name": name, "folder": self.folder, "steps": 0}
        atexit.register(self.finish)

    def log(self, step, **metrics):
        self.summary["steps"] = step + 1
        self.summary.update(metrics)

    def finish(self):
        self.folder.mkdir(exist_ok=True)
        (self.folder / "summary.json").write_text(json.dumps(self.summary))  # here
