import torch
import torch.distributed as dist
from tokens import COUNT, Tokens, write
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
path = f"tokens-{rank}.bin"
write(path)
dist.barrier()
tokens = Tokens(path)
model = DistributedDataParallel(torch.nn.Linear(512, 8))
for step in range(32):
    if step == 9 and rank == 1:
        write(path, count=100_000)  # the tokenizer starts again
    rows = tokens.window(step * COUNT // 32)
    model(rows / COUNT).mean().backward()
print("done")
