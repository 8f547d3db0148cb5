import argparse
import time


def train(lr, steps=30):
    weight = 1.0
    for step in range(steps):
        weight -= lr * 2 * weight
        loss = weight**2
        if loss > 100:
            raise FloatingPointError(f"diverged at step {step} with lr {lr}")  # here
        time.sleep(0.03)
        print(f"lr {lr} step {step} loss {loss:.5f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, required=True)
    train(parser.parse_args().lr)
