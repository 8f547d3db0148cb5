import asyncio
import os
import time

import coordinator

RANK = int(os.environ["RANK"])


async def beat():
    for _ in range(100):
        try:
            reader, writer = await asyncio.open_connection(*coordinator.ADDRESS)
            break
        except ConnectionRefusedError:
            await asyncio.sleep(0.1)
    while True:
        writer.write(f"{RANK}\n".encode())
        if not await reader.readline():  # here
            raise ConnectionError("the coordinator has closed the connection")  # here
        await asyncio.sleep(0.2)


async def train():
    for step in range(90):
        if RANK == 1 and step == 20:
            time.sleep(2.5)  # Tokenizes the next shard.  # here
        await asyncio.sleep(0.05)
        print(f"rank {RANK} step {step}", flush=True)


async def main():
    if RANK == 0:
        # Rank 0 is no member itself.
        coordinator.start()
        await train()
        return
    beats = asyncio.create_task(beat())
    steps = asyncio.create_task(train())
    await asyncio.wait([beats, steps], return_when=asyncio.FIRST_COMPLETED)
    if beats.done():
        beats.result()  # here


asyncio.run(main())
