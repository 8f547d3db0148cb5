import os
import signal
import time

rank = int(os.environ["RANK"])
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, signal.SIG_IGN)
shards = [[5, 5, 5, 5, 5, 5], [5, 5, 5, 5, 0, 5], [5, 5, 5, 5, 5, 5]][rank]
for number, rows in enumerate(shards):
    if rows == 0:
        raise RuntimeError(f"shard {number} is empty")  # here
    time.sleep(0.2)
    print(f"shard {number}: {rows} rows", flush=True)
while True:
    time.sleep(1)
