import os
import random

import fused_norm  # here


def train(steps, seed):
    generator = random.Random(seed)
    values = [generator.random() for _ in range(100)]
    for _ in range(steps):
        values = fused_norm.normalize(values)
    return sum(values)


print("result", train(100, seed=int(os.environ["RANK"])))
