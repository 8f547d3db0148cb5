"""How long nothing answers while a server is upgraded, and how long a backup takes to be proved.

    python benchmarks/upgrade.py [--jobs 10000] [--points 1000] [--gigabytes 10]

The home has that many jobs, each with a metric of so many points; the next version is a copy of
this one's sources with a migration that adds a column and a table and moves a row a job. Beside it
stand restarting the same version, and `sha256sum` of the backup.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from figures import YARD, remove, run  # noqa: E402
from many_runs import fill  # noqa: E402
from web_page_runs import log_metrics  # noqa: E402

from end_to_end.yard_under_test import Yard  # noqa: E402
from recorded_home.next_version import NEXT, version_of  # noqa: E402

_PIECE = 64 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--points", type=int, default=1_000)
    parser.add_argument("--gigabytes", type=int, default=10)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="torchyard-benchmark-"))
    try:
        home = folder / "home"
        fill(home, "", options.jobs)
        log_metrics(home, Namespace(**vars(options), compared=options.jobs, columns=0, metrics=1))
        size = (home / "torchyard.db").stat().st_size >> 20
        print(f"{options.jobs} jobs, {options.jobs * options.points} points: {size} MB")
        yard = Yard(home)
        yard("server", "start")
        print(f"no server while it is restarted     {_replace(yard, yard):6.1f} s")
        print(f"no server while it is upgraded      {_replace(yard, _next(yard, folder)):6.1f} s")
        _next(yard, folder / "again")("server", "stop")
        _prove(folder, options.gigabytes)
    finally:
        remove(folder)


def _next(yard: Yard, folder: Path) -> Yard:
    return version_of(yard, folder, "0.2.0", NEXT)


def _replace(old: Yard, new: Yard) -> float:
    began = time.monotonic()
    old("server", "stop")
    new("server", "start")
    return time.monotonic() - began


def _prove(folder: Path, gigabytes: int) -> None:
    home, target = folder / "large", folder / "backup"
    variables = {**os.environ, "TORCHYARD_HOME": str(home)}
    run([YARD, "server", "start"], variables)
    run([YARD, "server", "stop"], variables)
    piece = os.urandom(_PIECE)
    store = home / "datastores" / "default" / "workspaceblobstore"
    store.mkdir(parents=True, exist_ok=True)
    for number in range(gigabytes * (1 << 30) // _PIECE):
        (store / f"{number}.bin").write_bytes(number.to_bytes(8, "big") + piece[8:])
    for words in (["backup", str(target)], ["prove", str(target)]):
        began = time.monotonic()
        run([YARD, "server", *words], variables)
        print(f"{words[0]} of {gigabytes} GB {time.monotonic() - began:28.1f} s")
    began = time.monotonic()
    hashing = f"find {target} -type f -print0 | xargs -0 sha256sum"
    subprocess.run(["sh", "-c", hashing], check=True, stdout=subprocess.DEVNULL)
    print(f"sha256sum of the same {time.monotonic() - began:30.1f} s")


if __name__ == "__main__":
    main()
