import random
import sys


def loss_of(weights, rows):
    return sum((sum(w * x for w, x in zip(weights, row, strict=True)) - 1) ** 2 for row in rows)


def main(steps=200):
    rows = [[random.random() for _ in range(4)] for _ in range(50)]
    weights = [0.0] * 4
    for step in range(steps):
        candidate = [w + random.gauss(0, 0.05) for w in weights]
        weights = min(weights, candidate, key=lambda w: loss_of(w, rows))
        print(f"step {step} loss {loss_of(weights, rows):.4f}")
    return 0


if __name__ == "main":
    sys.exit(main())
