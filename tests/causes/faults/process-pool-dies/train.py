import os
from concurrent.futures import ProcessPoolExecutor


def load(shard):
    os._exit(shard)  # here


if __name__ == "__main__":
    with ProcessPoolExecutor(1) as pool:
        print(pool.submit(load, 3).result())  # here
