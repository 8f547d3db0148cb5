import os
import subprocess
import sys
import time

RANK = os.environ["RANK"]


def stage(shard):
    done = subprocess.run(["bash", "stage.sh", shard])
    if done.returncode:
        sys.exit(done.returncode)  # here


def main():
    stage(RANK)
    for step in range(40):
        time.sleep(0.05)
        print(f"rank {RANK} step {step}", flush=True)


if __name__ == "__main__":
    main()
