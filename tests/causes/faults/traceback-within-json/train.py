import logging
import os
import sys
import time

import json_log


def check(rate):
    if rate != 16000:
        raise ValueError(f"sample rate {rate} instead of 16000")  # here


def train(rank):
    for step in range(20):
        check(44100 if rank == 2 and step == 9 else 16000)
        time.sleep(0.05)
        logging.info("step %d loss %.4f", step, 1 / (step + 1))


if __name__ == "__main__":
    json_log.set_up()
    try:
        train(int(os.environ["RANK"]))
    except Exception:
        logging.exception("training failed")
        sys.exit(1)  # here
