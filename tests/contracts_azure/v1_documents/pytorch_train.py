"""A little network on the GPU, if torch finds one; its weights into --output_dir."""

import argparse
import os

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--num_epochs", type=int)
parser.add_argument("--output_dir")
args = parser.parse_args()
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(args.num_epochs):
    loss = model(torch.ones(8, 4, device=device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("epoch", epoch, "on", device.type)
os.makedirs(args.output_dir, exist_ok=True)
torch.save(model.state_dict(), os.path.join(args.output_dir, "model.pt"))
