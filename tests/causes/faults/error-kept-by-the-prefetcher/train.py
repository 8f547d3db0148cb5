import os
import time

from prefetch import Prefetcher

RANK = int(os.environ["RANK"])


def lines(rank):
    for number in range(40):
        yield f"{number},{number / 2},n/a" if (rank, number) == (2, 12) else f"{number},1.5,2"


def main():
    for step, batch in enumerate(Prefetcher(lines(RANK))):
        time.sleep(0.05)
        print(f"rank {RANK} step {step} mean {sum(batch) / len(batch):.2f}", flush=True)


if __name__ == "__main__":
    main()
