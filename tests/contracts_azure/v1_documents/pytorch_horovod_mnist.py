"""What a script written for Horovod does first: ranks, devices, the sum of all."""

import horovod.torch as hvd
import torch

hvd.init()
if torch.cuda.is_available():
    torch.cuda.set_device(hvd.local_rank())
total = hvd.allreduce(torch.tensor([float(hvd.rank() + 1)]), op=hvd.Sum)
print(f"rank {hvd.rank()} of {hvd.size()}, local {hvd.local_rank()}, sum {total.item()}")
