import asyncio


async def load():
    raise ValueError("bad shard 3")  # here


async def main():
    await asyncio.gather(load(), asyncio.sleep(30))


asyncio.run(main())
