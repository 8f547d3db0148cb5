import pathlib
import sys

import torch
import torch.distributed as dist


def index_of(folder):
    """The first row of each block of 100 rows, kept beside the rows."""
    index = folder / "rows.idx"
    if dist.get_rank() == 0 and not index.exists():
        rows = (folder / "rows.txt").read_text().splitlines()
        index.write_text("\n".join(rows[::100]))  # here
    dist.barrier()
    return [int(line) for line in index.read_text().splitlines()]


dist.init_process_group("gloo")
starts = index_of(pathlib.Path(sys.argv[1]))
total = torch.tensor(float(sum(starts)))
dist.all_reduce(total)
print("sum", total.item())
