import json

from torch.utils.data import IterableDataset


class JsonLines(IterableDataset):
    def __init__(self, path, transform):
        self.path, self.transform = path, transform

    def __iter__(self):
        with open(self.path, encoding="utf-8") as file:
            yield from map(self.transform, (json.loads(line) for line in file))  # here
