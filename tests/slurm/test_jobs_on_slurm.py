"""Jobs on a real Slurm: two nodes, a controller, and what may happen to them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from end_to_end.yard_under_test import Yard, wait_until
from slurm.conftest import create_compute
from slurm.slurm_cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]
ONE_DATABASE = True
WriteJob = Callable[..., str]
_RANKS = """\
import os, sys, time
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
print("node", os.environ["NODE_RANK"], file=sys.stderr, flush=True)
print("hidden", [name for name in os.environ if name.startswith(("SLURM_PROCID", "SLURM_NTASKS"))])
os.makedirs("outputs", exist_ok=True)
open(f"outputs/rank-{os.environ['RANK']}.txt", "w").write("done")
for number in range(1000):
    print("line", number)
"""
_LONG = """\
import time
print("begun", flush=True)
time.sleep(600)
"""
# Counts on from its checkpoint; leaves it when it is told to end.
_COUNTS = """\
import os, signal, sys, time
file = "outputs/count.txt"
os.makedirs("outputs", exist_ok=True)
count = int(open(file).read()) if os.path.exists(file) else 0
print("from", count, flush=True)
def end(*_):
    open(file, "w").write(str(count))
    print("saved", count, flush=True)
    sys.exit(1)
signal.signal(signal.SIGTERM, end)
while count < int(sys.argv[1]):
    count += 1
    time.sleep(0.1)
print("counted to", count, flush=True)
"""
# The second rank saves one on its own node, as torchyard.train does.
_CHECKPOINTS = """\
import os, time
folder = "outputs/checkpoints/step-00000100"
if os.path.exists(folder + "/manifest.json"):
    print("goes on from", open(folder + "/__RANK_1.distcp").read(), flush=True)
    raise SystemExit
if os.environ["RANK"] == "1":
    os.makedirs(folder)
    open(folder + "/__RANK_1.distcp", "w").write("step 100")
    open(folder + "/manifest.new", "w").write("{}")
    os.rename(folder + "/manifest.new", folder + "/manifest.json")
print("begun", flush=True)
time.sleep(600)
"""


def create(yard: Yard, file: str) -> str:
    """The name of a new job."""
    return str(json.loads(yard("job", "create", "-f", file, "-o", "json"))["name"])


def slurm_job(yard: Yard, slurm: SlurmCluster, name: str) -> str:
    """The id of a job's last job of Slurm, once it runs."""
    jobs: list[str] = []

    def runs() -> bool:
        lines = slurm.run("squeue", "-h", "-t", "R", "-o", "%A %j").split("\n")
        jobs[:] = [line.split()[0] for line in lines if "torchyard-" in line]
        return bool(jobs)

    wait_until(runs, 60, f"job {name} runs in Slurm")
    return jobs[-1]


def has_printed(yard: Yard, name: str, text: bytes) -> bool:
    return any(text in log for log in yard.logs(name).values())


def notices(job: dict[str, Any]) -> str:
    return "\n".join(str(notice) for notice in job["notices"])


def test_two_nodes_of_two_ranks_complete_with_all_their_logs(
    yard: Yard, slurm: SlurmCluster, write_job: WriteJob
) -> None:
    distribution = {"type": "pytorch", "process_count_per_instance": 2}
    name = create(
        yard,
        write_job(_RANKS, resources={"instance_count": 2}, distribution=distribution),
    )
    yard.completed(name)
    logs = yard.logs(name)
    lines = "".join(f"line {number}\n" for number in range(1000)).encode()
    assert len(logs) == 4
    for rank in range(4):
        (log,) = [log for log in logs.values() if f"rank {rank} of 4".encode() in log]
        assert lines in log and b"hidden []" in log
    files = {file["path"] for file in yard.get(f"jobs/{name}/files")["value"]}
    assert {f"outputs/rank-{rank}.txt" for rank in range(4)} <= files
    wait_until(lambda: not slurm.jobs(), 30, "nothing is left in Slurm")
    wait_until(lambda: not slurm.processes_of_jobs(), 30, "nothing is left on the nodes")
    assert not list((slurm.folder / "nodes" / "scratch").iterdir())


def test_a_job_that_waits_says_for_what(
    yard: Yard, slurm: SlurmCluster, write_job: WriteJob
) -> None:
    other = slurm.run("sbatch", "--parsable", "-N2", "--exclusive", "--wrap", "sleep 60").strip()
    slurm.wait_until(lambda: slurm.state(other) == "RUNNING", "the other job runs")
    name = create(yard, write_job("print('ran')", resources={"instance_count": 2}))
    wait_until(
        lambda: (
            "waits for Slurm: its nodes are in use" in yard("job", "show", "-n", name)
            or "waits for Slurm: other jobs have a higher priority"
            in yard("job", "show", "-n", name)
        ),
        30,
        "it says that its nodes are in use",
    )
    slurm.run("scancel", other)
    yard.completed(name)


def test_canceling_takes_a_waiting_job_out_of_slurm(
    yard: Yard, slurm: SlurmCluster, write_job: WriteJob
) -> None:
    other = slurm.run("sbatch", "--parsable", "-N2", "--exclusive", "--wrap", "sleep 60").strip()
    slurm.wait_until(lambda: slurm.state(other) == "RUNNING", "the other job runs")
    name = create(yard, write_job(_LONG))
    slurm.wait_until(lambda: len(slurm.jobs()) == 2, "it waits in Slurm")
    yard("job", "cancel", "-n", name)
    assert yard.wait(name, 30)["status"] == "Canceled"
    slurm.wait_until(lambda: slurm.jobs() == [other], "it has left Slurm")
    slurm.run("scancel", other)


def test_canceling_ends_a_running_job_in_slurm(
    yard: Yard, slurm: SlurmCluster, write_job: WriteJob
) -> None:
    name = create(yard, write_job(_LONG, resources={"instance_count": 2}))
    wait_until(lambda: has_printed(yard, name, b"begun"), 60, "it has begun")
    yard("job", "cancel", "-n", name)
    assert yard.wait(name, 30)["status"] == "Canceled"
    slurm.wait_until(lambda: not slurm.jobs(), "it has left Slurm")
    wait_until(lambda: not slurm.processes_of_jobs(), 30, "nothing is left on the nodes")


def test_a_job_canceled_outside_of_torchyard_says_so(
    yard: Yard, slurm: SlurmCluster, write_job: WriteJob
) -> None:
    name = create(yard, write_job(_LONG))
    job = slurm_job(yard, slurm, name)
    wait_until(lambda: has_printed(yard, name, b"begun"), 60, "it has begun")
    slurm.run("scancel", job)
    ended = yard.wait(name, 60)
    assert ended["status"] == "Failed"
    assert ended["error"]["code"] == "canceled_in_slurm", ended["error"]
    assert f"Slurm job {job} was canceled outside of torchyard" in ended["error"]["message"]


def test_a_preempted_job_resumes_from_its_checkpoint_in_the_same_run(
    yard: Yard, slurm: SlurmCluster, write_job: WriteJob
) -> None:
    name = create(yard, write_job(_COUNTS, command="python main.py 80"))
    wait_until(lambda: has_printed(yard, name, b"from 0"), 60, "it has begun")
    time.sleep(2)
    other = slurm.run(
        "sbatch", "--parsable", "-p", "high", "-N2", "--exclusive", "--wrap", "sleep 3"
    ).strip()
    slurm.wait_until(lambda: slurm.state(other) == "RUNNING", "the other job has its nodes")
    job = yard.completed(name)
    first, second = yard.logs_of_attempts(name)
    saved = int(first.split("saved ")[1].split()[0])
    assert 0 < saved < 80
    assert f"from {saved}\n" in second and "counted to 80" in second
    assert "attempt 1 was preempted: Slurm needs the nodes of job" in notices(job)


def test_a_job_at_its_time_limit_is_tried_again_by_its_policy(
    yard: Yard, slurm: SlurmCluster, write_job: WriteJob
) -> None:
    create_compute(yard, slurm, "brief", partition="low", time_limit="1")
    name = create(
        yard,
        write_job(
            _COUNTS,
            command="python main.py 500",
            compute="brief",
            torchyard={"retry": {"max_attempts": 3, "backoff_s": 0}},
        ),
    )
    job = yard.completed(name)
    first, *_, last = yard.logs_of_attempts(name)
    assert "saved" in first and "counted to 500" in last
    assert "reached its time limit of 1:00" in notices(job)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"partition": "nosuch"}, "partition `nosuch` does not exist in Slurm"),
        ({"partition": "closed", "account": "lab"}, "account `lab` may not use partition"),
        (
            {"time_limit": "5:00:00"},
            "time limit 5:00:00 is above that of partition `low`, 02:00:00",
        ),
        ({"qos": "nosuch"}, "Invalid qos specification"),
        ({"account": "nosuch"}, "Invalid account"),
        ({"gres": "gpu:h100:1"}, "Requested node configuration is not available"),
        ({"sbatch_options": ["--array=1-3"]}, "`--array` can't be among the `sbatch_options`"),
        ({"sbatch_options": ["--arr=1-3"]}, "is not among the options of sbatch"),
        ({"sbatch_options": ["--bbf=/etc/shadow"]}, "is not among the options of sbatch"),
        ({"sbatch_options": ["/etc/shadow"]}, "sbatch_options"),
        ({"partition": "low --uid=0"}, "partition `low --uid=0` does not exist in Slurm"),
    ],
)
def test_what_slurm_can_never_give_is_refused_at_once(
    yard: Yard, slurm: SlurmCluster, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(AssertionError) as refused:
        create_compute(yard, slurm, "refused", **settings)
    assert message in str(refused.value)
    assert "hint:" in str(refused.value)


def test_more_nodes_than_the_partition_has_are_refused_at_once(
    yard: Yard, slurm: SlurmCluster, write_job: WriteJob
) -> None:
    file = write_job(_LONG, resources={"instance_count": 3})
    with pytest.raises(AssertionError) as refused:
        name = create(yard, file)
        ended = yard.wait(name, 30)
        raise AssertionError(str(ended["error"]))
    assert "3 nodes" in str(refused.value)
    assert not slurm.jobs()


def test_a_node_without_the_python_says_so(
    yard: Yard, slurm: SlurmCluster, write_job: WriteJob
) -> None:
    create_compute(yard, slurm, "unpythonic", partition="low", python="/nosuch/python3")
    name = create(yard, write_job(_LONG, compute="unpythonic"))
    ended = yard.wait(name, 60)
    assert ended["status"] == "Failed"
    assert "/nosuch/python3" in ended["error"]["message"], ended["error"]


def test_jobs_go_on_while_the_controller_and_the_server_are_away(
    yard: Yard, slurm: SlurmCluster, write_job: WriteJob
) -> None:
    name = create(yard, write_job(_COUNTS, command="python main.py 250"))
    wait_until(lambda: has_printed(yard, name, b"from 0"), 60, "it has begun")
    # Slurm writes down what it knows every few seconds; a job that it has not it forgets.
    time.sleep(8)
    slurm.kill("slurmctld")
    yard.kill_server()
    time.sleep(2)
    yard("server", "start")
    slurm.start_controller()
    yard.completed(name)
    (only,) = yard.logs_of_attempts(name)
    assert "counted to 250" in only


def test_a_killed_slurmd_alone_does_not_end_a_job(
    yard: Yard, slurm: SlurmCluster, write_job: WriteJob
) -> None:
    name = create(yard, write_job(_COUNTS, command="python main.py 60"))
    wait_until(lambda: has_printed(yard, name, b"from 0"), 60, "it has begun")
    slurm.kill("n1")
    slurm.kill("n2")
    try:
        yard.completed(name)
    finally:
        slurm.start_node("n1")
        slurm.start_node("n2")
    slurm.wait_until(lambda: not slurm.jobs(), "Slurm has seen its end", 60)


def test_a_dead_node_is_named_soon(
    yard: Yard, slurm: SlurmCluster, write_job: WriteJob, tmp_path: Path
) -> None:
    name = create(yard, write_job(_LONG, resources={"instance_count": 2}))
    wait_until(
        lambda: sum(b"begun" in log for log in yard.logs(name).values()) == 2, 60, "both have begun"
    )
    slurm.kill_machine("n2")
    killed_at = time.monotonic()
    try:
        wait_until(lambda: "node 1" in yard("job", "show", "-n", name), 20, "the node is named")
        # Ten seconds on a machine that does nothing else.
        assert time.monotonic() - killed_at < 15
    finally:
        slurm.start_node("n2")
        yard("job", "cancel", "-n", name)
    slurm.wait_until(lambda: not slurm.jobs(), "Slurm has ended it", 60)


def test_a_checkpoint_outlives_its_node(
    yard: Yard, slurm: SlurmCluster, write_job: WriteJob, tmp_path: Path
) -> None:
    name = create(
        yard,
        write_job(_CHECKPOINTS, resources={"instance_count": 2}, distribution={"type": "pytorch"}),
    )
    manifest = "outputs/checkpoints/step-00000100/manifest.json"
    wait_until(lambda: manifest in str(yard.get(f"jobs/{name}/files")), 90, "it is delivered")
    slurm.kill_machine("n2")
    slurm.start_node("n2")
    wait_until(lambda: yard.job(name)["status"] == "Completed", 150, "the job has completed")
    logs = [log for path, log in yard.logs(name).items() if "attempt-1" not in path]
    assert sum(b"goes on from step 100" in log for log in logs) == 2, logs
    slurm.wait_until(lambda: not slurm.jobs(), "Slurm has ended it", 60)


@pytest.mark.parametrize(("node", "takes_all"), [("n1", False), ("n2", True)])
def test_a_killed_step_daemon_is_noticed_soon(
    yard: Yard, slurm: SlurmCluster, write_job: WriteJob, node: str, takes_all: bool
) -> None:
    """Slurm itself learns of it after minutes. Alone, it leaves a worker that reports it."""
    name = create(yard, write_job(_LONG, resources={"instance_count": 2}))
    wait_until(
        lambda: sum(b"begun" in log for log in yard.logs(name).values()) == 2, 60, "both have begun"
    )
    slurm.kill_step(node, takes_all)
    killed_at = time.monotonic()
    wait_until(lambda: yard.job(name)["status"] == "Failed", 60, "the job has failed")
    print(f"{time.monotonic() - killed_at:.1f} s: the job has failed")
    error = yard.job(name)["error"]
    assert f"node {int(node[1]) - 1}" in error["message"] and error["code"] != "stopped", error
    slurm.wait_until(lambda: not slurm.jobs(), "Slurm has ended it", 90)
    slurm.wait_until(lambda: not slurm.processes_of_jobs(), "nothing is left on the nodes", 60)
