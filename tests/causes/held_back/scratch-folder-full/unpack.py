import os
import tempfile

import numpy as np
import torch


def unpack(count, rows=4096):
    """Write `count` parts of the shard to the scratch disk; return their paths."""
    paths = []
    for number in range(count):
        handle, path = tempfile.mkstemp(suffix=f"-part{number}.f32")
        with os.fdopen(handle, "wb", buffering=0) as file:
            np.full((rows, 32), number, dtype=np.float32).tofile(file)  # here
        paths.append(path)
    return paths


def read(path):
    return torch.from_numpy(np.fromfile(path, dtype=np.float32).reshape(-1, 32))
