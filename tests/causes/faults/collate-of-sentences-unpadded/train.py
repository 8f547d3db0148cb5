import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

SHARDS = [
    ["the cat sat on", "a dog ran off", "we all go home", "this is a test"] * 4,
    ["the cat sat on", "a dog ran off", "we all go home", "this is one more test"] * 4,
]


class Sentences(Dataset):
    def __init__(self, texts):
        self.texts = texts

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return torch.tensor([len(word) for word in self.texts[index].split()])


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Embedding(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Sentences(SHARDS[dist.get_rank()]), batch_size=2, num_workers=2)
    for step, batch in enumerate(loader):  # here
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
