import torch
import torch.distributed as dist


def load(model, path):
    """Load the weights on rank 0 and send them to the others."""
    if dist.get_rank() == 0:
        model.load_state_dict(torch.load(path))  # here
    for parameter in model.parameters():
        dist.broadcast(parameter.detach(), src=0)
    return model
