import functools
import json
import logging
import os
import time

RANK = int(os.environ["RANK"])
INDEX = ['{"num_tokens": 512}', '{"n_tokens": 512}', '{"num_tokens": 640}', '{"num_tokens": 384}']


def retried(attempts):
    def wrap(function):
        @functools.wraps(function)
        def call(*args):
            for attempt in range(attempts):
                try:
                    return function(*args)
                except Exception as error:
                    logging.warning("%s, attempt %d: %r", function.__name__, attempt, error)
                    time.sleep(0.1 * 2**attempt)
            raise RuntimeError(f"{function.__name__} gave up after {attempts} attempts")  # here

        return call

    return wrap


@retried(attempts=3)
def read_shard(number):
    meta = json.loads(INDEX[number])
    return list(range(meta["num_tokens"]))  # here


tokens = read_shard(RANK)
for step in range(0, len(tokens), 8):
    time.sleep(0.05)
    print(f"rank {RANK} step {step // 8}", flush=True)
