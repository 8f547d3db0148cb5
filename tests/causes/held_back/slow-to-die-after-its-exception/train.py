import os
import time

import torch
import torch.distributed as dist

SPIKES = {(17, 1): 1e6}


def save_gradients(model, path="spike.pt"):
    torch.save([parameter.grad for parameter in model.parameters()], path)
    time.sleep(4)  # as long as the share takes


def step(model, number):
    scale = SPIKES.get((number, dist.get_rank()), 1.0)
    (model(torch.ones(4, 4)) * scale).sum().backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if norm > 1000:
        raise FloatingPointError(f"gradient norm {norm:.0f} exceeds 1000 at step {number}")  # here
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad.zero_()


dist.init_process_group("gloo")
network = torch.nn.Linear(4, 4)
try:
    for number in range(int(os.environ.get("STEPS", "50"))):
        step(network, number)
except FloatingPointError:
    dist.destroy_process_group()
    save_gradients(network)
    raise
