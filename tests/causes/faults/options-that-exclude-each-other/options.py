import argparse


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--warmup-steps", type=int, default=100)
    options = parser.parse_args()
    if options.warmup_steps >= options.steps:
        parser.error("the warmup must be shorter than the training")  # here
    return options
