import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Accuracy:
    def __init__(self):
        self.right = self.seen = 0

    def update(self, scores, labels):
        self.right += (scores.argmax(1) == labels).sum().item()
        self.seen += len(labels)

    def compute(self):
        totals = torch.tensor([self.right, self.seen], dtype=torch.float64)
        dist.all_reduce(totals)  # here
        return (totals[0] / totals[1]).item()


def train(network):
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(10):
        loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.arange(8) % 3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.3f}", flush=True)


def evaluate(network):
    accuracy = Accuracy()
    with torch.no_grad():
        accuracy.update(network(torch.randn(30, 4)), torch.arange(30) % 3)
    return accuracy.compute()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, network = dist.get_rank(), torch.nn.Linear(4, 3)
    train(network)
    dist.destroy_process_group()  # here
    if rank == 0:
        print(f"accuracy {evaluate(network):.3f}")  # here
