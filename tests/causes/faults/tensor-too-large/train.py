import torch

batch = torch.empty(1 << 50)  # here
