import os
import subprocess
import sys
import time

RANK = int(os.environ["RANK"])


def tokens_of(shard):
    # The tokenizer warns about each line; nobody wants to see that.
    done = subprocess.run(  # here
        [sys.executable, "tokenize_shard.py", str(shard)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,  # here
    )
    return done.stdout.split()


def main():
    tokens = tokens_of(RANK)
    for step in range(30):
        time.sleep(0.05)
        print(f"rank {RANK} step {step}: {len(tokens)} tokens", flush=True)


if __name__ == "__main__":
    main()
