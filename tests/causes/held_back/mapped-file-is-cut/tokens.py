import os

import torch

COUNT = 1 << 20


def write(path, count=COUNT):
    torch.arange(count, dtype=torch.int32).numpy().tofile(path)


class Tokens:
    def __init__(self, path):
        count = os.path.getsize(path) // 4
        self.ids = torch.from_file(path, shared=True, size=count, dtype=torch.int32)

    def window(self, start, length=512):
        return self.ids[start : start + length].float()  # here
