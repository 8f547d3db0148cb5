"""What a script sees of files that torch.save has handed over, with a function in its place."""

from __future__ import annotations

import csv
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(sys.platform != "linux", reason="jobs run on Linux"),
]

BEGIN = """
import os, pickle, shutil, signal, subprocess, sys, time
from pathlib import Path
from train.saved_files.fake_torch import begin, load, save_slowly
torch, taken = begin()
def slowly(obj, path="outputs/last.pt"):
    save_slowly(torch, taken, obj, path)
"""


def start(folder: Path, script: str, **variables: str) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    path = os.pathsep.join((str(REPOSITORY / "src"), str(REPOSITORY / "tests")))
    return subprocess.Popen(
        [sys.executable, "-c", BEGIN + textwrap.dedent(script)], cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, **variables},
    )  # fmt: skip


def run(folder: Path, script: str, code: int = 0, **variables: str) -> tuple[str, str]:
    process = start(folder, script, **variables)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == code, errors
    return output, errors


def read(path: Path) -> object:
    return pickle.loads(path.read_bytes())


def test_whoever_reads_the_file_right_after_the_save_sees_all_of_it(tmp_path: Path) -> None:
    run(tmp_path, """
    slowly([1]); assert load("outputs/last.pt") == [1]
    slowly([2]); assert load(os.path.abspath("outputs/last.pt")) == [2]
    slowly([3]); assert pickle.loads(Path("outputs/last.pt").read_bytes()) == [3]
    slowly([4]); shutil.copy("outputs/last.pt", "best.pt"); assert load("best.pt") == [4]
    slowly([5]); shutil.copyfile("outputs/last.pt", "outputs/best.pt")
    assert load("outputs/best.pt") == [5]
    slowly("x" * 9000); assert os.path.getsize("outputs/last.pt") > 9000
    slowly([6]); assert pickle.loads(subprocess.check_output(["cat", "outputs/last.pt"])) == [6]
    slowly([7]); os.system("cp outputs/last.pt system.pt"); assert load("system.pt") == [7]
    os.symlink(os.path.abspath("outputs"), "link")
    slowly([8]); assert load("link/last.pt") == [8]
    slowly([9]); os.link("outputs/last.pt", "outputs/linked.pt")
    assert load("outputs/linked.pt") == [9]
    """)  # fmt: skip


def test_a_new_file_is_there_for_whoever_asks_or_lists(tmp_path: Path) -> None:
    run(tmp_path, """
    slowly(1, "outputs/a.pt"); assert os.path.exists("outputs/a.pt")
    slowly(1, "outputs/b.pt"); assert Path("outputs/b.pt").is_file()
    slowly(1, "outputs/c.pt"); assert "c.pt" in os.listdir("outputs")
    slowly(1, "outputs/d.pt"); assert Path("outputs/d.pt") in set(Path("outputs").glob("*.pt"))
    slowly(1, "outputs/e.pt"); assert os.access("outputs/e.pt", os.R_OK)
    slowly(1, "outputs/f.pt"); os.remove("outputs/f.pt"); assert not os.path.exists("outputs/f.pt")
    slowly(1, "outputs/g.pt"); assert "g.pt" in {entry.name for entry in os.scandir("outputs")}
    os.mkdir("outputs/folder")
    slowly(1, "outputs/folder/h.pt"); os.rename("outputs/folder", "outputs/moved")
    assert load("outputs/moved/h.pt") == 1
    slowly(1, "outputs/moved/i.pt"); shutil.rmtree("outputs/moved")
    assert not os.path.exists("outputs/moved")
    names = "a.pt b.pt c.pt d.pt e.pt first.pt g.pt"
    assert sorted(os.listdir("outputs")) == names.split()
    """)  # fmt: skip


def test_a_script_may_save_to_another_name_and_rename(tmp_path: Path) -> None:
    run(tmp_path, """
    slowly({"epoch": 1}, "outputs/last.pt.tmp")
    os.replace("outputs/last.pt.tmp", "outputs/last.pt")
    assert load("outputs/last.pt") == {"epoch": 1} and not os.path.exists("outputs/last.pt.tmp")
    slowly({"epoch": 2}, "outputs/last.pt.tmp")
    shutil.move("outputs/last.pt.tmp", "outputs/last.pt")
    slowly({"epoch": 3}, "outputs/new.pt"); Path("outputs/new.pt").rename("elsewhere.pt")
    assert load("outputs/last.pt") == {"epoch": 2} and load("elsewhere.pt") == {"epoch": 3}
    # A file that is written again is not overtaken by the save before it.
    slowly({"epoch": 4}); Path("outputs/last.pt").write_bytes(b"by hand")
    assert Path("outputs/last.pt").read_bytes() == b"by hand"
    """)  # fmt: skip


def test_folders_are_made_and_looked_for_without_waiting(tmp_path: Path) -> None:
    run(tmp_path, """
    os.kill(taken.files._writer.process.pid, signal.SIGSTOP)
    torch.save(1, "outputs/last.pt")
    os.makedirs("outputs", exist_ok=True); assert os.path.isdir("outputs")
    Path("outputs/other.txt").write_text("x"); Path("notes.txt").write_text("x")
    assert os.listdir(".") and taken.files.is_pending()
    os.kill(taken.files._writer.process.pid, signal.SIGCONT)
    """)  # fmt: skip


def test_saves_in_a_row_become_one_file_after_the_other(tmp_path: Path) -> None:
    run(tmp_path, """
    state = {"step": 0}
    for step in range(20):
        state["step"] = step
        torch.save(state, "outputs/last.pt")
        if step % 5 == 0:
            torch.save(state, f"outputs/step{step}.pt")
            assert load(f"outputs/step{step}.pt") == {"step": step}
    assert load("outputs/last.pt") == {"step": 19}
    """)  # fmt: skip
    assert read(tmp_path / "outputs/last.pt") == {"step": 19}
    rows = list(csv.DictReader((tmp_path / "logs/torch_saves.csv").read_text().splitlines()))
    assert len(rows) == 25 and {row["error"] for row in rows} == {""}
    assert rows[-1]["path"].endswith("outputs/last.pt") and int(rows[-1]["size_bytes"]) > 0
    assert rows[-1]["saved_at"] <= rows[-1]["durable_at"]


def test_other_targets_go_the_ordinary_way(tmp_path: Path) -> None:
    _, errors = run(tmp_path, """
    import io
    stream = io.BytesIO(); torch.save([1], stream); assert pickle.loads(stream.getvalue()) == [1]
    with open("outputs/handle.pt", "wb") as file:
        torch.save([2], file)
    torch.save([3], "elsewhere.pt"); torch.save([4], f="outputs/keyword.pt", protocol=4)
    torch.save([5], Path("outputs/path.pt"))
    os.symlink("/dev/null", "outputs/null"); torch.save([6], "outputs/null")
    assert taken.files._number == 3  # first.pt, keyword.pt and path.pt
    names = ("outputs/handle", "elsewhere", "outputs/keyword", "outputs/path")
    for number, name in enumerate(names, 2):
        assert load(f"{name}.pt") == [number], name
    class Broken:
        def __reduce__(self):
            raise ValueError("can't be pickled")
    for path, kind in (("outputs/path.pt", ValueError), ("outputs/none/x.pt", FileNotFoundError),
                       ("outputs", IsADirectoryError)):
        try:
            torch.save(Broken() if kind is ValueError else 1, path)
        except kind:
            continue
        raise AssertionError(path)
    assert load("outputs/path.pt") == [5] and os.listdir(".torchyard-saves") == []
    """)  # fmt: skip
    assert errors == ""


def test_a_files_mode_stays(tmp_path: Path) -> None:
    run(tmp_path, """
    os.umask(0o027); torch.save(1, "outputs/new.pt")
    assert os.stat("outputs/new.pt").st_mode & 0o777 == 0o640
    os.chmod("outputs/new.pt", 0o600); torch.save(2, "outputs/new.pt")
    assert os.stat("outputs/new.pt").st_mode & 0o777 == 0o600
    """)  # fmt: skip


@pytest.mark.parametrize(
    "end",
    ["sys.exit()", "sys.exit(3)", "os.kill(os.getpid(), 9)", "os._exit(0)", "raise ValueError"],
)
def test_a_save_that_returned_is_not_lost_however_the_script_ends(tmp_path: Path, end: str) -> None:
    code = {"sys.exit(3)": 3, "os.kill(os.getpid(), 9)": -9, "raise ValueError": 1}.get(end, 0)
    state = "b'x' * 20_000_000"
    run(tmp_path, f"torch.save({state}, 'outputs/last.pt'); {end}", code)
    until = time.monotonic() + 100
    while not (tmp_path / "outputs/last.pt").exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert read(tmp_path / "outputs/last.pt") == b"x" * 20_000_000


def test_a_writer_that_is_killed_is_replaced(tmp_path: Path) -> None:
    _, errors = run(tmp_path, """
    os.kill(taken.files._writer.process.pid, signal.SIGSTOP)
    torch.save([1], "outputs/a.pt"); torch.save([2], "outputs/b.pt")
    os.kill(taken.files._writer.process.pid, signal.SIGKILL)
    assert load("outputs/a.pt") == [1] and load("outputs/b.pt") == [2]
    """)  # fmt: skip
    assert "the process that writes files ended (-9); starting another" in errors


def test_processes_that_the_script_forks_wait_and_save_as_well(tmp_path: Path) -> None:
    run(tmp_path, """
    import multiprocessing
    context = multiprocessing.get_context("fork")
    def child():
        assert load("outputs/last.pt") == ["parent"]
        torch.save(["child"], "outputs/child.pt")
    slowly(["parent"])
    process = context.Process(target=child); process.start(); process.join()
    assert process.exitcode == 0 and load("outputs/child.pt") == ["child"]
    assert load("outputs/last.pt") == ["parent"]
    """)  # fmt: skip


def test_another_rank_of_the_node_waits_too(tmp_path: Path) -> None:
    """As after a barrier: one rank has saved, and all load."""
    second = start(tmp_path, """
    while not os.path.exists("saved"):
        time.sleep(0.01)
    assert load("outputs/last.pt") == ["whole"], "half or none"
    """, RANK="1")  # fmt: skip
    run(
        tmp_path,
        """
    slowly(["whole"])
    Path("saved").touch()
    """,
    )
    _, errors = second.communicate(timeout=120)
    assert second.returncode == 0, errors


def test_what_killed_processes_left_holds_nobody_up(tmp_path: Path) -> None:
    process = start(
        tmp_path,
        """
    os.kill(taken.files._writer.process.pid, signal.SIGSTOP)
    torch.save([1], "outputs/last.pt")
    print(taken.files._writer.process.pid, flush=True)
    time.sleep(100)
    """,
    )
    assert process.stdout is not None
    os.kill(int(process.stdout.readline()), signal.SIGKILL)
    process.kill()
    process.communicate()
    assert len(list((tmp_path / ".torchyard-saves").iterdir())) <= 1
    run(tmp_path, """
    assert not os.path.exists("outputs/last.pt")
    torch.save([2], "outputs/last.pt"); assert load("outputs/last.pt") == [2]
    assert os.listdir(".torchyard-saves") == []
    """)  # fmt: skip


def test_without_memory_it_is_written_at_once_and_that_is_said_once(tmp_path: Path) -> None:
    _, errors = run(
        tmp_path,
        """
    taken.files._limit_bytes = 1000
    torch.save("x" * 5000, "outputs/last.pt"); torch.save("y" * 5000, "outputs/last.pt")
    assert not taken.files.is_pending() and load("outputs/last.pt") == "y" * 5000
    torch.save([1], "outputs/last.pt"); assert load("outputs/last.pt") == [1]
    """,
    )
    assert errors.count("torch.save writes while training waits: the copy needs") == 1


def test_a_full_disk_is_said_training_goes_on_and_the_script_fails_at_its_end(
    tmp_path: Path,
) -> None:
    """A limit on the size of files stands for the full disk, of the writer alone."""
    script = """
    import resource
    torch.save("small", "outputs/last.pt"); taken.wait()
    def limit(size):
        resource.prlimit(taken.files._writer.process.pid, resource.RLIMIT_FSIZE, (size, -1))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limit(1000)
    torch.save("x" * 5000, "outputs/last.pt"); torch.save("x" * 5000, "outputs/other.pt")
    print("training goes on"); taken.wait()
    try:
        load("outputs/last.pt")
    except OSError as error:
        assert "File too large, so torch.save did not write it" in str(error), error
    else:
        raise AssertionError("the file before was taken for the new one")
    limit(-1)
    torch.save("again", "outputs/last.pt"); assert load("outputs/last.pt") == "again"
    """
    output, errors = run(tmp_path, script, code=1)
    assert output == "training goes on\n"
    assert "last.pt` can't be written: File too large; trying again in 1 s" in errors
    assert "the file that was there is as it was, and training goes on" in errors
    assert errors.count("error: torch.save could not write") == 1 and "other.pt`: File" in errors
    assert read(tmp_path / "outputs/last.pt") == "again"
    # A script that saves all of it later ends well.
    run(tmp_path, script + 'torch.save("again", "outputs/other.pt")\n')


def test_outside_of_jobs_nothing_is_intercepted() -> None:
    from types import SimpleNamespace

    from torchyard.train.saved_files import interception

    module = SimpleNamespace(save=print)
    assert interception.install(module, {}) is None and module.save is print


def test_a_signal_handler_may_save_while_the_script_saves(tmp_path: Path) -> None:
    run(tmp_path, """
    def handle(number, frame):
        torch.save(["handler"], "outputs/handler.pt")
    signal.signal(signal.SIGUSR1, handle)
    class State:
        def __reduce__(self):
            signal.raise_signal(signal.SIGUSR1)
            return (list, ())
    torch.save(State(), "outputs/last.pt")
    assert load("outputs/handler.pt") == ["handler"] and load("outputs/last.pt") == []
    """)  # fmt: skip
