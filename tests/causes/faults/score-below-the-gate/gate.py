import logging
import sys

NEEDED = {"accuracy": 0.85, "recall": 0.5}


def check(scores):
    for name, needed in NEEDED.items():
        if scores[name] < needed:
            logging.error("%s %.3f is below %.3f, not released", name, scores[name], needed)
            sys.exit(1)  # here
    logging.info("released")
