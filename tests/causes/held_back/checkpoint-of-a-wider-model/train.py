import argparse
import os

import torch
import torch.distributed as dist
from torch import nn


def build(hidden):
    return nn.Sequential(nn.Linear(5, hidden), nn.Sigmoid(), nn.Linear(hidden, 1))


def keep_a_run_of_yesterday(path):
    torch.save({"epoch": 4, "model": build(48).state_dict()}, path)


parser = argparse.ArgumentParser()
parser.add_argument("--hidden", type=int, default=48)
parser.add_argument("--resume", action="store_true")
options = parser.parse_args()

dist.init_process_group("gloo")
checkpoint = f"checkpoint-{os.environ['RANK']}.pt"
keep_a_run_of_yesterday(checkpoint)
model = build(options.hidden)
if options.resume:
    saved = torch.load(checkpoint)
    model.load_state_dict(saved["model"])  # here
    print("resumed after epoch", saved["epoch"])
model = nn.parallel.DistributedDataParallel(model)
