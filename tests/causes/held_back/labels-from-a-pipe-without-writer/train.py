import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
source = f"labels-{rank}.tsv"
if rank == 3:
    os.mkfifo(source)  # the decompressor of the large shard should write here
else:
    with open(source, "w") as file:
        file.writelines(f"{n}\t{n % 2}\n" for n in range(64))


def labels(path):
    with open(path) as file:  # here
        for line in file:
            yield float(line.split("\t")[1])


weight = torch.zeros(1, requires_grad=True)
for label in labels(source):
    loss = (weight - label).square()
    (gradient,) = torch.autograd.grad(loss.sum(), weight)
    dist.all_reduce(gradient)
    with torch.no_grad():
        weight -= 0.1 * gradient
