from queue import LabelQueue

import torch  # here
import torch.distributed as dist

dist.init_process_group("gloo")
rows = LabelQueue(range(dist.get_rank(), 20, dist.get_world_size()))
model = torch.nn.Linear(1, 1)
while (row := rows.next()) is not None:
    model(torch.tensor([float(row)])).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
