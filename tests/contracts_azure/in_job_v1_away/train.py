"""Two ranks that log quickly while the server is unreachable, and end without a flush."""

import os
import sys
import time
import warnings
from pathlib import Path

from azureml.core import Run

warnings.simplefilter("ignore")
shared_folder = Path(sys.argv[1])
rank = os.environ["RANK"]
run = Run.get_context(allow_offline=False)
run.log(f"began-{rank}", 1)
run.flush()
while not (shared_folder / "away").exists():
    time.sleep(0.05)
taken = time.perf_counter()
for number in range(500):
    run.log(f"down-{rank}", 500 - number)
    # One value that two ranks log within one µs is one point.
    run.log("both", number + int(rank) / 2)
    run.log_row(f"row-{rank}", number=number, half=number / 2)
run.log(f"stepped-{rank}", 0.5, step=70)
run.tag(f"rank-{rank}", "was here")
run.add_properties({f"rank-{rank}": "was here"})
tags = run.get_tags()
run.flush()
assert tags[f"rank-{rank}"] == "was here", tags
taken = time.perf_counter() - taken
assert taken < 30, f"logging waited for the server: {taken} s"
(shared_folder / f"logged-{rank}").touch()
for number in range(60):
    run.log(f"last-{rank}", number)
if rank == "1":
    # As children of multiprocessing end; nothing of Python runs any more, as when it is killed.
    os._exit(0)
