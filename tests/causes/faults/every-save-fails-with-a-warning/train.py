import logging
import os
import time

import checkpoints


def main():
    rank = int(os.environ["RANK"])
    logging.basicConfig(
        level=logging.INFO, format=f"%(asctime)s %(levelname)s [rank {rank}] %(message)s"
    )
    weight = 5.0
    for step in range(1, 41):
        weight *= 0.9
        logging.info("step %d loss %.4f", step, weight**2)
        if rank == 0 and step % 8 == 0:
            checkpoints.save(step, {"weight": weight}, folder="runs/exp-12/checkpoints")
        time.sleep(0.03)
    logging.info("training finished")


if __name__ == "__main__":
    main()
