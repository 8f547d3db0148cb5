import os
from concurrent.futures import ThreadPoolExecutor

import augment

RANK = int(os.environ["RANK"])


def batches(rows, size):
    with ThreadPoolExecutor(2) as pool:
        for start in range(0, len(rows), size):
            yield list(pool.map(augment.crop, rows[start : start + size]))


def main():
    augment.seed(100 + RANK)
    rows = [list(range(number, number + 10)) for number in range(32)]
    print("a sample:", augment.crop(rows[0]), flush=True)
    for step, batch in enumerate(batches(rows, size=8)):
        print(f"step {step} mean {sum(map(sum, batch)) / 32:.2f}", flush=True)


if __name__ == "__main__":
    main()
