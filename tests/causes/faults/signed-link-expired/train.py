import os
import time

import shards
import store

RANK = int(os.environ["RANK"])


def main():
    for step, row in enumerate(shards.rows(store.links(10))):
        time.sleep(0.4 if RANK == 2 else 0.05)
        print(f"rank {RANK} shard {step} sum {sum(row)}", flush=True)
    print(f"rank {RANK} is done", flush=True)


if __name__ == "__main__":
    main()
