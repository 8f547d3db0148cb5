import os
import time

import catalogue
import gateway


def main():
    rank = int(os.environ["RANK"])
    address = gateway.start(is_logged_in=rank == 0)
    for epoch in range(4):
        for shard in catalogue.shards(address):
            time.sleep(0.1)
            print(f"rank {rank} epoch {epoch} shard {shard}", flush=True)


if __name__ == "__main__":
    main()
