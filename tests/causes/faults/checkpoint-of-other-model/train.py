import torch

torch.save(torch.nn.Linear(3, 4).state_dict(), "last.pt")
torch.nn.Linear(4, 3).load_state_dict(torch.load("last.pt"))  # here
