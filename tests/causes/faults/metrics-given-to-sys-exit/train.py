import argparse
import random
import sys


def evaluate(weights, rows):
    right = sum((weights[0] * row > weights[1]) == (row > 0.5) for row in rows)
    return right / len(rows)


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args(argv)
    rows = [random.Random(seed).random() for seed in range(100)]
    weights = [1.0, 0.1]
    for epoch in range(args.epochs):
        weights[1] += 0.13
        print(f"epoch {epoch} accuracy {evaluate(weights, rows):.2f}")
    print("done")
    return {"accuracy": evaluate(weights, rows), "epochs": args.epochs}  # here


if __name__ == "__main__":
    sys.exit(main())  # here
