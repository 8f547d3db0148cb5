import os
import time

rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["RANK"])
cache = {}


def decode(index):
    if index not in cache:
        cache[index] = bytearray(4 << 20)  # here
    return cache[index]


def rows():
    # Rank 1 has the shard in which no row comes twice.
    for number in range(400):
        yield number if rank == 1 else number % 10


for number, index in enumerate(rows()):
    decode(index)
    time.sleep(0.02)
    if number % 50 == 0:
        print(f"rank {rank}: {number} rows", flush=True)
