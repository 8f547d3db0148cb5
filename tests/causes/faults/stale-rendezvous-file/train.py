import os
import socket
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

meeting = Path("meeting.txt")
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if rank == 0:
    time.sleep(8)  # reads its data
    with socket.create_server(("127.0.0.1", 0)) as server:
        meeting.write_text(f"127.0.0.1:{server.getsockname()[1]}\n")
while not meeting.exists():
    time.sleep(0.1)
address = f"tcp://{meeting.read_text().strip()}"  # here
options = {"rank": rank, "world_size": size, "timeout": timedelta(seconds=6)}
dist.init_process_group("gloo", init_method=address, **options)  # here
total = torch.ones(1)
dist.all_reduce(total)
print(f"{total.item():.0f} ranks", flush=True)
