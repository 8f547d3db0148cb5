"""Starts the trainer with what belongs to this rank."""

import os
import subprocess
import sys

SHARDS = {"shard-0": 200_000, "shard-1": 45_000_000}


def main():
    rank = int(os.environ["RANK"])
    name, rows = sorted(SHARDS.items())[rank]
    environment = {**os.environ, "OMP_NUM_THREADS": "4"}
    command = [sys.executable, "trainer.py", name, str(rows)]
    return subprocess.run(command, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
