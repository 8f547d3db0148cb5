"""Finding what a job wrote outside its folder reads a bounded amount of the disk."""

from __future__ import annotations

from pathlib import Path

from eventually import eventually
from torchyard.worker.files import models_elsewhere


def test_of_many_large_files_of_data_a_few_megabytes_are_read(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"data-{number}.json").write_bytes(b"x" * 300_000)
    files = sorted(tmp_path.iterdir())
    texts = list(models_elsewhere.texts_below(files))
    assert sum(map(len, texts)) == 4 << 20
    assert max(map(len, texts)) == 256 << 10


def test_of_a_folder_with_very_many_files_the_outermost_are_listed(tmp_path: Path) -> None:
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    (tmp_path / "outer.txt").touch()
    for number in range(2_100):
        (tmp_path / "deep" / "deeper" / str(number)).touch()
    files = list(models_elsewhere.outermost_files(tmp_path))
    assert files[0] == tmp_path / "outer.txt"
    assert 1_900 < len(files) < 2_000


def test_a_new_folder_is_searched_below_and_an_older_one_is_not(tmp_path: Path) -> None:
    older, probe, runs = tmp_path / "older", tmp_path / "probe", tmp_path / "runs"
    (older / "1").mkdir(parents=True)
    made_at = (older / "1").stat().st_ctime

    def is_later() -> bool:
        probe.write_text("x")
        return probe.stat().st_ctime > made_at

    eventually(is_later, "the clock of the disk goes on")
    started_at = probe.stat().st_ctime
    model = runs / "1" / "checkpoints" / "epoch-3.ckpt"
    model.parent.mkdir(parents=True)
    model.touch()
    (older / "epoch-3.ckpt").touch()  # somebody else's, beside what was there
    text = f"--logdir {runs} --cache {older}"
    assert models_elsewhere.find([text], tmp_path, tmp_path / "node", started_at) == [model]


def test_of_many_paths_the_first_are_looked_for(tmp_path: Path) -> None:
    names = [f"{tmp_path}/{number}.pt" for number in range(10_000)]
    (tmp_path / "3.pt").touch()
    assert models_elsewhere.find(names, Path("/nowhere"), Path("/node"), 0.0) == [tmp_path / "3.pt"]
