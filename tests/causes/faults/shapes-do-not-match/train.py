import torch

model = torch.nn.Linear(5, 2)
print(model(torch.ones(4, 3)))  # here
