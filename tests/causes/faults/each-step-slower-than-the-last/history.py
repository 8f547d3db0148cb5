import time
from pathlib import Path


class History:
    """Figures in a file of the share, which takes some milliseconds for each line."""

    def __init__(self, path):
        self.path = Path(path)
        self.path.write_text("")

    def add(self, value):
        with self.path.open("a") as file:
            file.write(f"{value}\n")

    def mean(self):
        values = []
        for line in self.path.read_text().splitlines():
            time.sleep(0.004)
            values.append(float(line))
        return sum(values) / len(values)
