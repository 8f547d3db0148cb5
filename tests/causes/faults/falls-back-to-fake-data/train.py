import logging
import os
import random
import time

import corpus


def main():
    rank = int(os.environ["RANK"])
    logging.basicConfig(level=logging.INFO, format=f"%(levelname)s rank {rank}: %(message)s")
    rows = corpus.load(node=rank)
    weight = 0.0
    for step in range(30):
        batch = random.choices(rows, k=8)
        loss = sum((weight * x - y) ** 2 for x, y in batch) / len(batch)
        weight -= 0.1 * sum(2 * x * (weight * x - y) for x, y in batch) / len(batch)
        time.sleep(0.05)
        logging.info("step %d loss %.5f", step, loss)


if __name__ == "__main__":
    main()
