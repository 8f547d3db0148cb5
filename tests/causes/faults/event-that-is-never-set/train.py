import asyncio
import os

MANIFESTS = {0: ["a-0", "a-1", "a-2"], 1: []}


async def download(names, rows, ready):
    for name in names:
        await asyncio.sleep(0.1)
        rows.extend(f"{name}/{number}" for number in range(10))
        ready.set()


async def train(rows, ready):
    await ready.wait()  # here
    for step in range(8):
        await asyncio.sleep(0.1)
        print(f"step {step}: {rows[step]}", flush=True)


async def main(rank):
    rows, ready = [], asyncio.Event()
    await asyncio.gather(download(MANIFESTS[rank], rows, ready), train(rows, ready))  # here


if __name__ == "__main__":
    rank = int(os.environ["RANK"])
    print(f"rank {rank} has {len(MANIFESTS[rank])} shards", flush=True)
    asyncio.run(main(rank))  # here
