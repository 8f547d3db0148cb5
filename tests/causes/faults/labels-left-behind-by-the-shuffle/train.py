import math
import time

from data import load


def step(weights, rows, labels, lr):
    total = 0.0
    for row, label in zip(rows, labels, strict=True):
        logit = sum(weight * value for weight, value in zip(weights, row, strict=True))
        chance = 1 / (1 + math.exp(-logit))
        total -= math.log(chance if label else 1 - chance)
        for index, value in enumerate(row):
            weights[index] -= lr * (chance - label) * value
    return total / len(rows)


def main():
    rows, labels = load(6400, seed=3)
    weights = [0.0, 0.0]
    for number in range(100):
        part = slice(64 * number, 64 * number + 64)
        loss = step(weights, rows[part], labels[part], lr=0.01)
        time.sleep(0.02)
        print(f"step {number} loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
