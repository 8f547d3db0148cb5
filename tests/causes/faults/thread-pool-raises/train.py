from concurrent.futures import ThreadPoolExecutor


def load(shard):
    raise ValueError(f"bad shard {shard}")  # here


with ThreadPoolExecutor(2) as pool:
    print(pool.submit(load, 3).result())
