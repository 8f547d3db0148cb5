import csv
from pathlib import Path


class ShardReader:
    COLUMNS = ("text", "label")

    def __init__(self, path):
        header = Path(path).read_text().splitlines()[0].split(",")
        missing = [column for column in self.COLUMNS if column not in header]
        if missing:
            raise ValueError(f"{path} has no column {', '.join(missing)}")  # here
        self.file = open(path, newline="")

    def rows(self):
        yield from csv.DictReader(self.file)

    def __del__(self):
        self.file.close()
