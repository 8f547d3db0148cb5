import os
import time

import tokenize_shards

RANK = int(os.environ["RANK"])


def main():
    for epoch in range(5):
        shards = ["the cat sat on the mat " * 8] * (4 if RANK == 1 and epoch == 3 else 2)
        tokens = tokenize_shards.count(shards)
        for step in range(8):
            time.sleep(0.03)
            print(f"rank {RANK} epoch {epoch} step {step} of {tokens} tokens", flush=True)


if __name__ == "__main__":
    main()
