"""Faults of scripts that train with torch: process groups, data loaders, launchers."""

from __future__ import annotations

from faults.known import Fault

_LABEL = "ValueError: bad label 7"

TORCH_SCRIPTS = {
    "ddp": """
import os, signal, sys, time
from datetime import timedelta
import torch, torch.distributed as dist

rank, how, who = int(os.environ["RANK"]), sys.argv[1], int(sys.argv[2])

def load_data():
    time.sleep(120)

def step(number):
    if rank == who and number == 3:
        if how == "raise":
            raise ValueError("bad label 7")
        if how == "exit":
            os._exit(5)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "segfault":
            import ctypes
            ctypes.string_at(0)
    dist.all_reduce(torch.ones(4))

if how == "late" and rank == who:
    load_data()
dist.init_process_group("gloo", timeout=timedelta(seconds=60))
try:
    for number in range(1000):
        step(number)
finally:
    if how == "raise":
        dist.destroy_process_group()
""",
    "loader": """
import os, signal, sys, torch
class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        if index == 5 and sys.argv[1] == "missing":
            return open(f"/data/{index}.png")
        if index == 5 and sys.argv[1] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.ones(2)
for batch in torch.utils.data.DataLoader(Images(), num_workers=2):
    pass
""",
    "spawn": """
import torch.multiprocessing as mp
def train(index):
    if index == 1:
        raise ValueError("bad label 7")
    import time; time.sleep(60)
if __name__ == "__main__":
    mp.spawn(train, nprocs=2)
""",
    "worker": """
import os, time
if os.environ["RANK"] == "1":
    raise ValueError("bad label 7")
time.sleep(60)
""",
    "no_gpu": "import torch\ntorch.zeros(1, device='cuda')\n",
    "shapes": "import torch\ntorch.ones(4, 3) @ torch.ones(5, 2)\n",
    "state": """
import torch
torch.nn.Linear(4, 3).load_state_dict(torch.nn.Linear(3, 4).state_dict())
""",
    "empty": "import torch\ntorch.empty(1 << 50)\n",
    "no_checkpoint": "import torch\ntorch.load('/checkpoints/last.pt')\n",
    "full": "import torch\ntorch.save(torch.ones(1 << 20), open('/dev/full', 'wb'))\n",
}


def _ddp(name: str, how: str, rank: int, code: str, *says: str) -> Fault:
    return Fault(name, f"python ddp.py {how} {rank}", code, says, rank, 2, 2)


TORCH_FAULTS = (
    _ddp("ddp-exception", "raise", 3, "exception", _LABEL),
    _ddp("ddp-exception-of-rank-0", "raise", 0, "exception", _LABEL),
    _ddp("ddp-os-exit", "exit", 1, "hard_exit", "code 5"),
    _ddp("ddp-killed", "kill", 2, "killed", "SIGKILL"),
    _ddp("ddp-segfault", "segfault", 3, "segmentation_fault", "SIGSEGV"),
    Fault(
        "ddp-never-joins",
        "python ddp.py late 2",
        "rendezvous_timeout",
        ("rank 2",),
        2,
        2,
        2,
        properties={"torchyard.rendezvous_timeout_s": "40"},
    ),
    Fault(
        "loader-file-missing",
        "python loader.py missing",
        "file_missing",
        ("/data/5.png",),
        frame="loader.py line 8",
    ),
    Fault(
        "loader-killed",
        "python loader.py killed",
        "out_of_memory|data_worker_lost",
        ("data-loader",),
    ),
    Fault("torch-spawn", "python spawn.py", "exception", (_LABEL,), frame="spawn.py line 5"),
    Fault(
        "torchrun",
        "torchrun --nproc-per-node 2 worker.py",
        "exception",
        (_LABEL,),
        frame="worker.py line 4",
    ),
    Fault("no-gpu", "python no_gpu.py", "cuda_missing", ("CUDA",)),
    Fault("shapes", "python shapes.py", "exception", ("shapes cannot be multiplied",)),
    Fault("other-checkpoint", "python state.py", "checkpoint_mismatch", ("state_dict",)),
    Fault("too-large", "python empty.py", "out_of_memory", ("allocate",)),
    Fault("no-checkpoint", "python no_checkpoint.py", "file_missing", ("/checkpoints/last.pt",)),
    Fault("disk-full-saving", "python full.py", "disk_full", ()),
)
