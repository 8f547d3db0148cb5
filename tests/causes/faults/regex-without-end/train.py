import re

import torch
import torch.distributed as dist

WORDS = re.compile(r"^(\w+\s?)*$")

dist.init_process_group("gloo")
rank = dist.get_rank()
texts = ["a short one", "another short one", "one more"] * 20
if rank == 0:
    texts[45] = "some forty words without any mark between them at their end a mark!"
for step, text in enumerate(texts):
    is_clean = WORDS.match(text) is not None  # here
    count = torch.tensor([float(is_clean)])
    dist.all_reduce(count)
    print(f"step {step} clean {count.item():.0f}", flush=True)
