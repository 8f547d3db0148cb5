import os
import time

import rewards

RANK = int(os.environ["RANK"])


def main():
    for step in range(20):
        time.sleep(0.05)
        print(f"rank {RANK} warm-up step {step} loss {1 / (step + 1):.3f}", flush=True)
    if RANK == 0:
        scores = rewards.start()
        for step in range(20):
            scores.sendall(b"a text\n")
            print(f"step {step} reward {float(scores.recv(100)):.3f}", flush=True)
    print(f"rank {RANK} is done", flush=True)


if __name__ == "__main__":
    main()
