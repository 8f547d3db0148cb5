"""A job on two nodes of Slurm: torchyard beside a plain sbatch.

    python benchmarks/slurm_launch.py [--rounds 5]

Both run the same script on a Slurm that this program starts on this machine, without accounting; it
needs root and what `make slurm-programs` installs. Warm: the nodes have the environment already.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from figures import (
    CREATE,
    FIRST_LINE,
    YARD,
    Case,
    clean_variables,
    compare,
    printed_lines,
    run,
    temporary_yard,
    timed_job,
)

from slurm.slurm_cluster import SlurmCluster

_COMPUTE = """\
name: lab
type: amlcompute
max_instances: 2
torchyard: {{engine: slurm, partition: low, config: {config}, node_folder: {folder}}}
"""
_JOB = """\
command: python main.py
code: code
environment: python
compute: lab
resources: {instance_count: 2}
properties: {torchyard.gpus: 0}
"""
_BATCH = """\
#!/bin/sh
srun python3 {folder}/code/main.py
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    cluster = SlurmCluster(accounting=False).start()
    try:
        with temporary_yard() as variables:
            _prepare(cluster, variables)
            _torchyard(cluster, variables)  # builds the environment, and brings it to the nodes
            cases = [
                Case("torchyard", partial(_torchyard, cluster, variables)),
                Case("sbatch", partial(_sbatch, cluster)),
            ]
            compare("A job on two nodes of Slurm", cases, rounds)
    finally:
        cluster.close()


def _prepare(cluster: SlurmCluster, variables: Mapping[str, str]) -> None:
    code = cluster.folder / "code"
    code.mkdir()
    (code / "main.py").write_text(FIRST_LINE)
    nodes = cluster.folder / "nodes"
    compute = cluster.folder / "compute.yml"
    compute.write_text(_COMPUTE.format(config=cluster.config, folder=nodes))
    (cluster.folder / "job.yml").write_text(_JOB)
    (cluster.folder / "batch.sh").write_text(_BATCH.format(folder=cluster.folder))
    run([YARD, "compute", "create", "-f", compute], variables)


def _torchyard(cluster: SlurmCluster, variables: Mapping[str, str]) -> Mapping[str, float]:
    figures = timed_job(CREATE, variables, cluster.folder, _of_both)
    cluster.wait_until(lambda: not cluster.jobs(), "Slurm is done with it")
    return figures


def _sbatch(cluster: SlurmCluster) -> Mapping[str, float]:
    log = cluster.folder / "batch.out"
    command: list[str | Path] = ["sbatch", "--wait", "--nodes=2", "--partition=low"]
    command += [f"--output={log}", cluster.folder / "batch.sh"]
    variables = clean_variables(SLURM_CONF=str(cluster.config))
    figures = timed_job(command, variables, None, lambda _: _of_both(log.read_text()))
    cluster.wait_until(lambda: not cluster.jobs(), "Slurm is done with it")
    return figures


def _of_both(printed: str) -> list[float]:
    lines = printed_lines(printed)
    assert len(lines) == 2, printed
    return lines


if __name__ == "__main__":
    main()
