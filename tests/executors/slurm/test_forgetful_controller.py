"""What Slurm says after its controller was killed: it has forgotten jobs, and uses ids again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from torchyard.executors.executor import EngineRefused, EngineUnreachable, Handle
from torchyard.executors.launch_files import LaunchFiles
from torchyard.executors.server_for_nodes import NodeAddresses, ServerForNodes
from torchyard.executors.slurm import cluster
from torchyard.executors.slurm.commands import _COLUMNS, Slurm
from torchyard.executors.slurm.engine import SlurmEngine

_CONFIG = "Configuration data as of 2026-03-01T12:01:00\nBOOT_TIME               = {boot}\n"


@dataclass
class Programs:
    """Slurm's, as scripts that print what a test says; what they were called with."""

    folder: Path

    def write(self, name: str, printed: str = "", code: int = 0, ends_by: int = 0) -> None:
        text = self.folder / f"{name}.out"
        text.write_text(printed)
        end = f"kill -{ends_by} $$" if ends_by else f"exit {code}"
        file = self.folder / name
        file.write_text(
            f'#!/bin/sh\necho "$@" >>"{self.folder}/{name}.calls"\ncat "{text}"\n{end}\n'
        )
        file.chmod(0o755)

    def knows(self, id: int, name: str, state: str, nodes: str = "") -> None:
        """What squeue says of a job."""
        values = {"JobID": str(id), "Name": name, "State": state, "NodeList": nodes}
        line = "".join(values.get(key, "").ljust(width) for key, width in _COLUMNS.items())
        self.write("squeue", line + "\n")

    def calls(self, name: str) -> str:
        file = self.folder / f"{name}.calls"
        return file.read_text() if file.exists() else ""

    @property
    def environ(self) -> dict[str, str]:
        return {"PATH": f"{self.folder}:/usr/bin:/bin"}


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    made = Programs(tmp_path / "bin")
    made.folder.mkdir()
    for name in ("squeue", "sacct", "scancel", "sbatch", "scontrol", "sstat"):
        made.write(name)
    return made


@pytest.fixture
def engine(programs: Programs, tmp_path: Path) -> SlurmEngine:
    server = ServerForNodes("5" * 32, NodeAddresses)
    return SlurmEngine(tmp_path, programs.environ, LaunchFiles(tmp_path), server)


def handle(engine: SlurmEngine) -> Handle:
    body = {"attempt": "a1", "job": 7, "nodes": 2, "config": "", "signal_s": 70}
    return Handle("slurm", body)


def own_name(engine: SlurmEngine) -> str:
    return engine._job_name("a1")


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_a_job_that_only_the_accounting_believes_in_is_lost(
    programs: Programs, engine: SlurmEngine, state: str
) -> None:
    programs.write("sacct", f"7|{state}|0:0|{own_name(engine)}\n")
    status = engine.status(handle(engine))
    assert status.nodes == ("lost", "lost")
    assert status.lost_because[0] == "Slurm does not know its job any more"


def test_another_job_with_its_id_is_not_taken_for_it_and_not_ended(
    programs: Programs, engine: SlurmEngine
) -> None:
    programs.knows(7, "somebody-else", "RUNNING")
    assert engine.status(handle(engine)).nodes == ("lost", "lost")
    engine.stop(handle(engine), 0.0)
    engine.release(handle(engine))
    assert programs.calls("scancel") == ""
    engine.close()


def test_what_is_ended_is_named(programs: Programs, engine: SlurmEngine) -> None:
    programs.knows(7, own_name(engine), "RUNNING")
    engine.stop(handle(engine), 0.0)
    calls = programs.calls("scancel").splitlines()
    assert calls == [f"--name={own_name(engine)} --signal=KILL 7", f"--name={own_name(engine)} 7"]
    engine.close()


def test_a_job_that_waits_again_has_lost_its_nodes(programs: Programs, engine: SlurmEngine) -> None:
    programs.knows(7, own_name(engine), "PENDING")
    lost = engine.probe(handle(engine), [1], {1})
    assert lost == {1: "Slurm has put its job back into the queue"}
    engine.close()


@pytest.mark.parametrize("printed", ["7.batch|n1\n", "7.batch|n1\n7.0|n1\n"])
def test_a_worker_without_processes_is_lost_only_once_it_has_begun(
    programs: Programs, engine: SlurmEngine, printed: str
) -> None:
    programs.knows(7, own_name(engine), "RUNNING", nodes="n[1-2]")
    programs.write("sstat", printed)
    # The names lead nowhere: a node that nobody can ask counts as if it answered.
    programs.write("scontrol", "NodeName=n2 NodeAddr=node.invalid Port=6818 State=ALLOCATED\n")
    assert engine.probe(handle(engine), [1], {0}) == {}
    lost = engine.probe(handle(engine), [1], {0, 1})
    assert lost == {1: "n2: Slurm's processes of the job have ended there"}
    engine.close()


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED"])
def test_an_answer_from_before_the_job_began_is_asked_again(
    programs: Programs, engine: SlurmEngine, state: str
) -> None:
    programs.knows(7, own_name(engine), "PENDING")
    assert engine.status(handle(engine)).nodes == ("pending", "pending")
    # It answers from what it has.
    engine._cluster("")[1].close()
    programs.knows(7, own_name(engine), state)
    assert engine.probe(handle(engine), [1], {1}) == {}
    engine.stop(handle(engine), 30.0)
    assert "--signal=KILL" not in programs.calls("scancel")
    assert ("--signal=TERM" in programs.calls("scancel")) == (state == "RUNNING")
    engine.close()


def test_a_program_of_slurm_that_is_killed_refuses_nothing(programs: Programs) -> None:
    programs.write("sbatch", ends_by=9)
    with pytest.raises(EngineUnreachable, match="`sbatch` was ended by signal 9"):
        Slurm(programs.environ).submit([], "#!/bin/sh\n")


@pytest.mark.parametrize(("boot", "is_passing"), [("12:00:30", True), ("09:00:00", False)])
def test_a_controller_that_has_just_started_refuses_only_for_now(
    programs: Programs, boot: str, is_passing: bool
) -> None:
    programs.write("scontrol", _CONFIG.format(boot=f"2026-03-01T{boot}"))
    refusal = EngineRefused("Slurm refuses: Requested node configuration is not available")
    assert cluster.is_passing(refusal, [], Slurm(programs.environ)) is is_passing
    other = EngineRefused("Slurm refuses: invalid partition specified: gpu")
    assert not cluster.is_passing(other, [], Slurm(programs.environ))
