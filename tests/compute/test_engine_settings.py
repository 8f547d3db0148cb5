"""The mapping `torchyard:` of a cluster's document, and the same keys as tags."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.base.errors import InvalidSpec
from torchyard.compute import engine_settings
from torchyard.executors.cluster_settings import preemption_grace_s
from torchyard.executors.ray.settings import RaySettings
from torchyard.executors.slurm.settings import SlurmSettings

ENGINES = ("local", "ray", "slurm")


def read(
    document: dict[str, Any], tags: dict[str, str] | None = None
) -> tuple[str, dict[str, Any]]:
    engine, settings = engine_settings.read({"name": "lab", **document, "tags": tags}, ENGINES)
    return engine, settings.written


def test_mapping_key_and_tags_mean_the_same() -> None:
    settings = {"partition": "gpu", "exclusive": True, "sbatch_options": ["--mail-type=END"]}
    mapping = {"torchyard": {"engine": "slurm", **settings}}
    assert read(mapping) == ("slurm", settings)
    assert read({"engine": "Slurm", "torchyard": settings}) == ("slurm", settings)
    tags = engine_settings.as_tags("slurm", settings)
    assert tags["torchyard.engine"] == "slurm"
    assert read({}, tags) == ("slurm", settings)
    assert read(mapping, tags) == ("slurm", settings)
    assert engine_settings.without({**tags, "team": "vision"}) == {"team": "vision"}
    assert engine_settings.as_tags("local", {}) == {}


def test_mappings_come_through_tags() -> None:
    settings = {"address": "10.0.0.5:6379", "resources": {"CPU": 8, "GPU": 2.0}}
    assert read({}, engine_settings.as_tags("ray", settings)) == ("ray", settings)


def test_settings_say_how_many_gpus_a_node_has() -> None:
    assert RaySettings.of_cluster({"start": True, "resources": {"GPU": 2.0}}).gpus == 2
    assert RaySettings.of_cluster({"start": True}).gpus is None
    assert SlurmSettings.of_cluster({"gres": "nvme:1,gpu:a100:4"}).gpus == 4
    assert SlurmSettings.of_cluster({"gres": "nvme:1"}).gpus is None


@pytest.mark.parametrize(
    ("written", "grace_s"), [(None, 30.0), (45, 45.0), ("2 min", 120.0), ("PT1H", 3600.0)]
)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_cluster_says_how_long_a_preempted_rank_has(
    engine: str, written: int | str | None, grace_s: float
) -> None:
    mapping = {"engine": engine, "start": True} if engine == "ray" else {"engine": engine}
    _, settings = read({"torchyard": {**mapping, "preemption_grace": written}})
    assert preemption_grace_s(settings) == grace_s


@pytest.mark.parametrize(
    ("mapping", "message", "hint", "at"),
    [
        ({"engine": "slurn"}, "`slurn` is not an engine", "`slurm`", "engine"),
        ({"engine": "slurm", "partitoin": "a"}, "unknown key", "did you mean `partition`?", None),
        ({"engine": "slurm", "address": "a:1"}, "setting of the engine `ray`", "ray", "address"),
        ({"engine": "slurm", "exclusive": "often"}, "is `often`", "`true` or `false`", "exclusive"),
        ({"engine": "slurm", "partition": ["a"]}, "must be text", "partition: gpu", None),
        ({"engine": "slurm", "partition": "a\nb"}, "control characters", "gpu", None),
        ({"engine": "slurm", "partition": "x" * 2000}, "longer than 1000", "gpu", None),
        ({"engine": "slurm", "time_limit": "soon"}, "`time_limit` is `soon`", "2-00", None),
        ({"engine": "slurm", "sbatch_options": ["-N2"]}, "not an option written", "", None),
        ({"engine": "slurm", "sbatch_options": {"a": 1}}, "a list of", "--mail", None),
        ({"engine": "slurm", "config": "slurm.conf"}, "absolute path", "/", None),
        ({"engine": "ray"}, "has no `address`", "start: true", ""),
        ({"engine": "ray", "address": "head"}, "not `host:port`", "6379", "address"),
        ({"engine": "ray", "address": "h:99999"}, "not `host:port`", "6379", None),
        ({"engine": "ray", "address": "h:1", "start": True}, "asks for a new one", "", None),
        ({"engine": "ray", "start": True, "resources": {"CPU": "x"}}, "a number", "CPU", None),
        ({"engine": "slurm", "server_urls": ["ftp://a"]}, "not the address", "https", None),
        ({"engine": "slurm", "shared_folder": "/a"}, "by TCP", "open its port", "shared_folder"),
        ({"engine": "local", "partition": "a"}, "this cluster's is `local`", "slurm", None),
        ({"engine": "local", "spill_over": "lab"}, "the cluster itself", "another", None),
        ({"preemption_grace": "2 moons"}, "not a length of time", "2 min", "preemption_grace"),
        ({"preemption_grace": "2 h"}, "at most 60 min", "2 min", None),
        ({"engine": 3}, "must be text", "local", "engine"),
        ([], "must be a mapping", "torchyard:", ""),
    ],
)
def test_a_wrong_setting_is_named(mapping: Any, message: str, hint: str, at: str | None) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        read({"torchyard": mapping})
    assert message in refusal.value.message
    assert hint in refusal.value.hint
    location = tuple(refusal.value.at)
    assert location[0] == "torchyard"
    if at is not None:
        assert location[1:] == ((at,) if at else ())


def test_all_wrong_settings_are_named_where_they_are_written() -> None:
    tags = {"torchyard.partition": "a", "torchyard.server_urls": "ftp://a"}
    with pytest.raises(InvalidSpec) as refusal:
        read({"torchyard": {"engine": "ray", "adress": "head:1", "labels": {"a": 1}}}, tags)
    assert sorted(fault.at for fault in (refusal.value, *refusal.value.others)) == [
        ("tags", "torchyard.partition"),
        ("tags", "torchyard.server_urls"),
        ("torchyard", "adress"),
        ("torchyard", "labels", "a"),
    ]


def test_a_misspelt_engine_blames_no_setting() -> None:
    with pytest.raises(InvalidSpec) as refusal:
        read({"torchyard": {"engin": "ray", "address": "head:1"}})
    assert (refusal.value.at, refusal.value.others) == (("torchyard", "engin"), ())


def test_a_key_with_two_values_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="`engine` is given twice"):
        read({"engine": "ray", "torchyard": {"engine": "slurm"}})


def test_an_engine_that_this_server_lacks_is_named() -> None:
    with pytest.raises(InvalidSpec, match="engine `ray` is not served yet"):
        engine_settings.read({"torchyard": {"engine": "ray"}}, ("local",))


@pytest.mark.parametrize(
    ("engine", "message", "hint"),
    [
        ("locl", "`locl` is not an engine", "did you mean `local`?"),
        ("slrm", "`slrm` is not an engine, and `slurm` is not served yet", "use `engine: local`"),
        ("kubernetes", "`kubernetes` is not an engine", "use one of: local"),
    ],
)
def test_a_word_that_is_no_engine_is_refused(engine: str, message: str, hint: str) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        engine_settings.read({"torchyard": {"engine": engine}}, ("local",))
    assert refusal.value.message == message
    assert refusal.value.hint.startswith(hint)
