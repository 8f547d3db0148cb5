import os
import time

from calibrate import temperature

RANK = int(os.environ["RANK"])


def train(steps):
    for step in range(steps):
        time.sleep(0.05)
        print(f"rank {RANK} step {step} loss {1 / (step + 1):.3f}", flush=True)


if __name__ == "__main__":
    train(steps=30)
    # Each rank calibrates its own head; that of rank 0 is calibrated already.
    target = 0.5 if RANK == 0 else 3.7
    if target > 0.5:
        print(f"rank {RANK}: {temperature(lambda value: target - value)}", flush=True)
    print(f"rank {RANK} is done", flush=True)
