import multiprocessing


def load(shard):
    raise ValueError(f"bad shard {shard}")  # here


if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(load, [3])
