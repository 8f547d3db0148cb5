import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import monitor


class Tagger(torch.nn.Module):
    def __init__(self, words=50, tags=5):
        super().__init__()
        self.embed = torch.nn.Embedding(words, 8)
        self.encoder = torch.nn.LSTM(8, 16, batch_first=True)
        self.head = torch.nn.Linear(16, tags)

    def forward(self, tokens):
        states, _ = self.encoder(self.embed(tokens))
        return self.head(states)


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Tagger())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(20):
        if step == 5:
            monitor.watch(model)
        tokens = torch.randint(0, 50, (4, 12))
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten() % 5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
