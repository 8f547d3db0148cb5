import json
import os
import time

import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 0:
    with open("vocab.json", "w") as file:
        json.dump({"a": 0, "b": 1}, file)
else:
    while not os.path.exists("vocabulary.json"):
        time.sleep(0.5)  # here
dist.barrier()
print(f"rank {rank} has the vocabulary", flush=True)
