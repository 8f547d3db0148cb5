import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SHARDS = ["the cat sat on the mat", "a bird sang in the old oak tree", "the dog sat on the log"]

dist.init_process_group("gloo")
words = SHARDS[dist.get_rank()].split()
vocabulary = {word: number for number, word in enumerate(sorted(set(words)))}
model = torch.nn.Sequential(torch.nn.Embedding(len(vocabulary), 8), torch.nn.Linear(8, 2))
model = DistributedDataParallel(model)  # here
for _ in range(5):
    loss = model(torch.tensor([vocabulary[word] for word in words])).square().mean()
    loss.backward()
