import torch

weights = torch.zeros(1, device="cuda")  # here
