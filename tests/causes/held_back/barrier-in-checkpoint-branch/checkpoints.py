import os

import torch
import torch.distributed as dist


def save(model, step, folder="outputs"):
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, "last.pt.tmp")
    torch.save({"step": step, "model": model.module.state_dict()}, temporary)
    os.replace(temporary, os.path.join(folder, "last.pt"))
    dist.barrier()  # here
