import os
import sys
import time

rank = int(os.environ["RANK"])
shards = [[f"shard-{rank}-{number}" for number in range(40)] for rank in range(3)]
shards[1][3] = ""
for step, shard in enumerate(shards[rank]):
    if not shard:
        sys.exit()
    time.sleep(0.1)
    print(f"step {step}: {shard} embedded", flush=True)
print(f"rank {rank}: all shards embedded", flush=True)
