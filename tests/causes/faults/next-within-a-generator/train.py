import os
import time

from data import interleaved

rank = int(os.environ["RANK"])
for step, document in zip(range(60), interleaved(rank)):
    time.sleep(0.05)
    print(f"rank {rank} step {step} {document}", flush=True)
