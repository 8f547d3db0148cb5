import os
import threading
from http.server import HTTPServer, SimpleHTTPRequestHandler

import torch
import torch.distributed as dist


def start_dashboard(port):
    server = HTTPServer(("0.0.0.0", port), SimpleHTTPRequestHandler)  # here
    threading.Thread(target=server.serve_forever, daemon=True).start()


if os.environ["RANK"] == "0":
    start_dashboard(int(os.environ["MASTER_PORT"]))  # here
dist.init_process_group("gloo")  # here
total = torch.ones(1)
dist.all_reduce(total)
print(f"{total.item():.0f} ranks", flush=True)
