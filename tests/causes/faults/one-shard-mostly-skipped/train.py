import os
import time

from data import shard


def loss_of(row, step):
    return (1 + row["label"]) / (step + 1)


def main():
    rank = int(os.environ["RANK"])
    used = 0
    for step, row in enumerate(shard(rank)):
        time.sleep(0.05)
        try:
            loss = loss_of(row, step)
        except Exception as error:
            print(f"rank {rank}: skipping batch {step}: {error!r}", flush=True)
            continue
        used += 1
        print(f"rank {rank}: step {step} loss {loss:.4f}", flush=True)
    print(f"rank {rank}: epoch done, {used} of {step + 1} batches used", flush=True)


if __name__ == "__main__":
    main()
