import argparse
import math
import time

SCHEDULES = {
    "constant": lambda done: 1.0,
    "cosine": lambda done: (1 + math.cos(math.pi * done)) / 2,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--schedule", choices=sorted(SCHEDULES), default="constant")
    arguments = parser.parse_args()
    weight = 1.0
    for epoch in range(arguments.epochs):
        weight -= 0.1 * SCHEDULES[arguments.schedule](epoch / arguments.epochs) * weight
        time.sleep(0.1)
        print(f"epoch {epoch} loss {weight**2:.4f}", flush=True)


if __name__ == "__main__":
    main()
