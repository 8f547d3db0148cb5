"""A node of a real Slurm is lost between a checkpoint's commit and its delivery."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from end_to_end.yard_under_test import Yard, wait_until
from executors.listening_yard import CLUSTER, listening_yard
from slurm.slurm_cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]
ONE_DATABASE = True
# Each rank writes its part and the manifest of both, as writers of several machines do. In node 1's
# part of step 2 is a file whose name the server refuses: what comes after it, the part, stays there
# as if the way to the server was too slow for it.
_TRAIN = """
import json, os, sys, time
from pathlib import Path

rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHYARD_ATTEMPT_NUMBER"])
checkpoints = Path("outputs/checkpoints")


def part(step, rank):
    return f"state of rank {rank} at step {step}" * 1000


def save(step):
    folder = checkpoints / f"step-{step:08d}"
    folder.mkdir(parents=True)
    (folder / f"part-{rank}").write_text(part(step, rank))
    if (step, rank) == (2, 1):
        (folder / "0\\\\..\\\\late").touch()
    sizes = {f"part-{each}": {"size_bytes": len(part(step, each))} for each in range(2)}
    (folder / "new").write_text(json.dumps({"checkpoint": {"files": sizes}}))
    (folder / "new").replace(folder / "manifest.json")


def is_whole(step):
    folder = checkpoints / f"step-{step:08d}"
    parts = [folder / f"part-{each}" for each in range(2)]
    return all(file.exists() and file.read_text() == part(step, each)
               for each, file in enumerate(parts))


if attempt == 1:
    save(1)
    save(2)
    time.sleep(600)
whole = [step for step in (1, 2) if is_whole(step)]
print(f"attempt {attempt} goes on from step {whole[-1]}", flush=True)
"""


@pytest.fixture(scope="module")
def nodes_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nodes")


@pytest.fixture(scope="module")
def yard(slurm: SlurmCluster, nodes_folder: Path) -> Iterator[Yard]:
    torchyard = {
        "engine": "slurm",
        "partition": "low",
        "config": str(slurm.config),
        "node_folder": str(nodes_folder),
    }
    with listening_yard("peer-slurm", torchyard, 2) as yard:
        yield yard


@pytest.fixture
def nodes_come_back(slurm: SlurmCluster) -> Iterator[None]:
    """Slurm's own job on a lost node ends only when the node is there again."""
    yield
    slurm.restore()


@pytest.mark.usefixtures("nodes_come_back")
@pytest.mark.parametrize(("is_copied", "step"), [(True, 2), (False, 1)])
def test_the_next_attempt_goes_on_from_the_checkpoint_of_which_a_node_took_its_part_along(
    yard: Yard,
    slurm: SlurmCluster,
    nodes_folder: Path,
    tmp_path: Path,
    is_copied: bool,
    step: int,
) -> None:
    name = f"lost-part-{step}"
    (tmp_path / "train.py").write_text(_TRAIN)
    job = {
        "name": name,
        "command": "python train.py",
        "compute": CLUSTER,
        "environment": "python",
        "code": ".",
        "distribution": {"type": "pytorch", "process_count_per_instance": 1},
        "torchyard": {"min_nodes": 1, "max_nodes": 2},
    }
    if not is_copied:
        job["torchyard"] = {"min_nodes": 1, "max_nodes": 2, "checkpoint": {"peer_copies": False}}
    (tmp_path / "job.yml").write_text(yaml.safe_dump(job))
    yard("job", "create", "-f", str(tmp_path / "job.yml"))

    def delivered() -> set[str]:
        files = json.dumps(yard.get(f"jobs/{name}/files"))
        steps = ("1/part-0", "1/part-1", "1/manifest.json", "2/part-0", "2/manifest.json")
        return {each for each in (*steps, "2/part-1") if f"step-0000000{each}" in files}

    wait_until(lambda: len(delivered()) == 5, 240, "all that is not held up is delivered")
    copies = "scratch/*/node-0/peer-copies/step-00000002"
    if is_copied:
        wait_until(
            lambda: any(nodes_folder.glob(f"{copies}/manifest.json")), 60, "node 0 has a copy"
        )
    assert "2/part-1" not in delivered()
    slurm.kill_machine("n2")
    done = yard.completed(name, 300)
    codes = [(each["error"] or {}).get("code") for each in done["attempts"]]
    assert codes[0] in ("node_lost", "worker_lost") and codes[1:] == [None], done["notices"]
    assert f"attempt 2 goes on from step {step}" in json.dumps(
        [log.decode() for log in yard.logs(name).values()]
    )
    notice = "node 0 delivered the part of step-00000002 that node 1 had not delivered"
    assert (notice in done["notices"]) is is_copied, done["notices"]
