import socket

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Objects(Dataset):
    """Rows of an object store; `missing` ones are not in the cache of this rank."""

    def __init__(self, missing):
        self.missing = missing
        # A stand-in for a store that takes connections and does not answer.
        self.store = socket.create_server(("127.0.0.1", 0), backlog=16)

    def __len__(self):
        return 64

    def __getitem__(self, index):
        if index in self.missing:
            with socket.create_connection(self.store.getsockname()) as connection:
                content = connection.recv(64, socket.MSG_WAITALL)  # here
            return torch.frombuffer(bytearray(content), dtype=torch.float32)
        return torch.full((16,), float(index))


dist.init_process_group("gloo")
objects = Objects(missing={41} if dist.get_rank() == 3 else ())
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for rows in DataLoader(objects, batch_size=4, num_workers=1):  # here
    optimizer.zero_grad()
    model(rows).square().sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
print("epoch done")
