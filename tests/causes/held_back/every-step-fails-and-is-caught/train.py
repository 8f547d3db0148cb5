import logging

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(28, 4))
optimizer = torch.optim.Adam(model.parameters())
for step in range(12):
    try:
        images = torch.randn(6, 28, 14).flatten(1)
        optimizer.zero_grad()
        model(images).sum().backward()
        optimizer.step()
    except Exception as error:
        logging.warning("step %d skipped: %s", step, error)
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), "model.pt")
    logging.info("saved model.pt")
dist.destroy_process_group()
