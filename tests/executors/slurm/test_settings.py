"""A cluster's settings as words of sbatch, and the options that are refused."""

from __future__ import annotations

import pytest

from torchyard.base.errors import InvalidSpec
from torchyard.executors.slurm import sbatch_options
from torchyard.executors.slurm.settings import SlurmSettings


def test_every_setting_is_one_word_that_begins_with_its_option() -> None:
    read = SlurmSettings.of_cluster(
        {
            "partition": "gpu --uid=0",
            "time_limit": "1-12",
            "gres": "gpu:a100:2",
            "exclusive": True,
            "sbatch_options": ["--nice=5"],
            "server_urls": ["https://login:8766"],
        }
    )
    assert read.words == [
        "--partition=gpu --uid=0",
        "--time=1-12",
        "--gres=gpu:a100:2",
        "--exclusive",
        "--nice=5",
    ]
    assert read.python == "python3"


@pytest.mark.parametrize("option", ["--nice=5", "--mail-type=END", "--contiguous", "--begin=now+1"])
def test_harmless_options_are_passed_on(option: str) -> None:
    sbatch_options.check(option)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--array=1-9", "one attempt is one job of Slurm"),
        ("--requeue", "retry policy"),
        ("--output=/etc/passwd", "output goes to the job's logs"),
        ("--wrap=id", "torchyard writes the batch script"),
        ("--export=ALL", "from its job file"),
        ("--uid=0", "as the user that submits them"),
        ("--arr=1-9", "is not among the options of sbatch"),
        ("--bbf=/etc/shadow", "is not among the options of sbatch"),
        ("--partition=x", "can't be among the `sbatch_options`"),
        ("--mem=1G", "can't be among the `sbatch_options`"),
        ("-p x", "not an option written as one word"),
        ("script.sh", "not an option written as one word"),
        ("--nice=5\n--uid=0", "not an option written as one word"),
        ("--", "not an option written as one word"),
    ],
)
def test_options_that_break_jobs_are_refused_by_name(option: str, message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        sbatch_options.check(option)
