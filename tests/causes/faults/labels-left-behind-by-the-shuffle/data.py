import random


def load(count, seed):
    make = random.Random(seed)
    rows = [[make.uniform(-1, 1), make.uniform(-1, 1)] for _ in range(count)]
    labels = [int(first + second > 0) for first, second in rows]
    make.shuffle(rows)
    return rows, labels
