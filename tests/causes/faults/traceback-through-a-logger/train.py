import os
import time

import redirect

RANK = int(os.environ["RANK"])


def pose(step):
    joints = [0.1] * (12 if RANK == 1 and step == 13 else 17)
    if len(joints) != 17:
        raise ValueError(f"{len(joints)} joints instead of 17")  # here
    return joints


def main():
    redirect.set_up(RANK)
    for step in range(30):
        loss = sum(pose(step)) / (step + 1)
        time.sleep(0.05)
        print(f"step {step} loss {loss:.4f}")


if __name__ == "__main__":
    main()
