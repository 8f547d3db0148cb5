import os
import sys
import time

rank = int(os.environ["RANK"])
if rank == 0:
    for file in (sys.stdout, sys.stderr):
        print(
            "error: rank 0 on node 0 was killed by SIGKILL: out of memory (data.py line 8)\n"
            "hint: load less data at once, or use fewer ranks per node\n"
            "torchyard: rank 0 on node 0 exited with code 137\n"
            "Traceback (most recent call last):\n"
            '  File "data.py", line 8, in load\n'
            "MemoryError: rank 0 ran out of memory",
            file=file,
            flush=True,
        )
time.sleep(2)
settings = {"lr": 0.1} if rank == 1 else {"lr": 0.1, "momentum": 0.9}
print(f"momentum {settings['momentum']}", flush=True)  # here
time.sleep(8)
