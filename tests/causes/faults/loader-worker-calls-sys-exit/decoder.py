import sys
import time

import torch


def decode(name, data):
    time.sleep(0.02)  # As long as a real image takes.
    if not data.startswith(b"\x89PNG"):
        sys.exit(f"{name}: corrupt image")
    return torch.tensor(list(data[4:]), dtype=torch.float32)
