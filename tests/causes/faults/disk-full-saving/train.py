import torch

with open("/dev/full", "wb") as file:  # here
    torch.save(torch.ones(1 << 20), file)  # here
