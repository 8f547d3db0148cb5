import os
import signal
import sys
import time

shard, rows = sys.argv[1], int(sys.argv[2])
print(f"reading {rows} rows of {shard}", flush=True)
time.sleep(1)
if rows > 1_000_000:
    # As the kernel does when memory runs out.
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(3)
