import os
import pathlib
import time

DATA = pathlib.Path(os.environ.get("PREPARED", "prepared"))


def wait_for_data(poll_s=5):
    print("waiting for the preparation", flush=True)
    while not (DATA / "_SUCCESS").exists():
        time.sleep(poll_s)  # here


def train():
    rows = sorted(DATA.glob("part-*.csv"))
    print(f"rank {os.environ['RANK']}: {len(rows)} parts", flush=True)


wait_for_data()
train()
