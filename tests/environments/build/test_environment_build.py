"""Environments built by the real uv from wheels made by the test; no network."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import delete

from environments import wheels
from environments.conftest import Machine, MakeEnvironments
from eventually import eventually
from torchyard.base.errors import BuildFailed
from torchyard.environments import to_json
from torchyard.environments.assembly import Environments
from torchyard.environments.images import image_folder
from torchyard.environments.requested_builds import RequestedBuilds
from torchyard.environments.store import environment_builds
from torchyard.environments.types import BuildCanceled, EnvironmentSpec, from_json

# One build in a separate process: `<this> <home> <requirement> <database>`.
BUILDER = """
import os, sys
from pathlib import Path
from torchyard.base.clock import SystemClock
from torchyard.base.db import Database
from torchyard.environments.assembly import Environments
from torchyard.environments.types import Platform
home = Path(sys.argv[1])
database = Database(sys.argv[3])
environments = Environments(
    home, database, SystemClock(), dict(os.environ), Platform("linux", "x86_64", "cpu")
)
print(environments.builds.run(environments.resolver.resolve({"pip_requirements": [sys.argv[2]]})))
"""


def asked(environments: Environments, *requirements: str) -> EnvironmentSpec:
    return environments.resolver.resolve({"pip_requirements": list(requirements)})


def python(environment: Path, code: str) -> str:
    command = [str(environment / "bin" / "python"), "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def builds_begun(environments: Environments, spec: EnvironmentSpec) -> int:
    return environments.folders.log_path(spec.hash).read_text().count("Building environment")


def unfinished(machine: Machine) -> list[Path]:
    return list((machine.home / "environments").glob(".building-*"))


def start_builder(machine: Machine, requirement: str) -> subprocess.Popen[str]:
    source = str(Path(__file__).parents[3] / "src")
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(machine.home), requirement, machine.database],
        env={**machine.variables, "PYTHONPATH": source},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def put_slow_source(machine: Machine, name: str) -> Path:
    """A source package whose build creates a marker and then takes minutes."""
    marker = machine.wheels.parent / "begun"
    code = f"import pathlib, time\npathlib.Path({str(marker)!r}).touch()\ntime.sleep(600)\n"
    wheels.put_source(machine.wheels, name, "1.0", code)
    return marker


def wait_for(marker: Path) -> None:
    eventually(marker.exists, "the builder's mark")


def test_an_environment_is_whole_locked_compiled_and_discreet(
    environments: Environments, machine: Machine
) -> None:
    wheels.put(machine.wheels, "alpha", "1.0", requires=("beta>=1",), script="alpha-says")
    wheels.put(machine.wheels, "beta", "1.5")
    spec = asked(environments, "alpha")
    assert environments.folders.find(spec) is None
    folder = environments.builds.run(spec)
    assert environments.folders.find(spec) == folder == machine.home / "environments" / spec.hash
    output = subprocess.run([folder / "bin" / "alpha-says"], capture_output=True, text=True)
    assert output.stdout.strip() == str(folder / "bin" / "python")
    assert python(folder, "import beta, pip; print(beta.__version__)") == "1.5"
    assert not [*folder.glob("lib/python3*/site-packages/beta/__pycache__/*.pyc")]
    environments.compiler.finish(spec.hash)
    (compiled,) = folder.glob("lib/python3*/site-packages/beta/__pycache__/*.pyc")
    assert compiled.stat().st_nlink == 2, "the other is in the cache"
    cached = list((machine.home / "cache" / "bytecode").glob("*/*/*.pyc"))
    assert any(file.samefile(compiled) for file in cached)
    lock = (machine.home / "environments" / f"{spec.hash}.lock.txt").read_text()
    assert "alpha==1.0" in lock and "beta==1.5" in lock and "sha256:" in lock
    log = environments.folders.log_path(spec.hash).read_text()
    assert " + beta==1.5" in log and "uv pip compile" in log
    for text in (lock, log):
        assert str(machine.wheels) not in text
    (build,) = environments.records.all()
    assert (build.hash, build.status, build.lock) == (spec.hash, "ready", lock)
    resolved = to_json.resolved_json(environments, "default", {"pip_requirements": ["alpha"]})
    assert resolved["packages"] == ["alpha==1.0", "beta==1.5"]
    layered = {"pip_requirements": ["alpha", "msccl"]}
    environments.builds.run(environments.resolver.resolve(layered))
    resolved = to_json.resolved_json(environments, "default", layered)
    assert [line.partition("+")[0] for line in resolved["packages"]] == [
        "alpha==1.0", "beta==1.5", "msccl==2.3.0"
    ]  # fmt: skip
    for item in to_json.list_json(environments, "default"):
        to_json.version_to_json(environments, "default", item["name"], item["version"])
    assert not unfinished(machine)


def test_an_environment_sets_variables_that_have_no_value(
    environments: Environments, machine: Machine
) -> None:
    wheels.put(machine.wheels, "alpha", "1.0")
    plain = asked(environments, "alpha")
    spec = replace(plain, variables=(("YARD_TOLD", "it's \\ 1"),))
    assert spec.hash != plain.hash and from_json(json.loads(json.dumps(spec.to_json()))) == spec
    folder = environments.builds.run(spec)
    code = "import os; print(os.environ['YARD_TOLD'])"
    assert python(folder, code) == "it's \\ 1"
    command = [str(folder / "bin" / "python"), "-c", code]
    process = subprocess.run(command, env={"YARD_TOLD": "mine"}, capture_output=True, text=True)
    assert process.stdout.strip() == "mine"


def test_the_log_shows_no_secret_of_a_waiting_job(
    machine: Machine, make_environments: MakeEnvironments
) -> None:
    """A package's build program may print secrets in parts, in base64, over several lines."""
    secret, server_secret, late = "tr0ub4dor&3-of-ada", "hf_QmZxTnVbKcLp", "late-secret-value"
    machine.variables["HF_TOKEN"] = server_secret
    encoded = base64.b64encode(secret.encode()).decode()
    code = "import os, sys, time\n"
    for part in (secret[:7], secret[7:], " ", os.path.basename(secret), "\\n", encoded, "\\n"):
        code += f"sys.stderr.write({part!r}.encode().decode('unicode_escape'))\n"
        code += "sys.stderr.flush(); time.sleep(0.05)\n"
    code += f"print(os.environ.get('HF_TOKEN'), {late!r}, 'x' * 70000 + {secret!r})\n"
    code += f"raise SystemExit('no: ' + {secret!r})\n"
    wheels.put_source(machine.wheels, "leaky", "1.0", code)
    asked_for: list[int] = []

    def secrets() -> dict[str, int]:
        asked_for.append(1)
        # Another caller joins once the build runs.
        return {secret: 8} if len(asked_for) == 1 else {secret: 8, late: 8}

    environments = make_environments()
    spec = asked(environments, "leaky")
    with pytest.raises(BuildFailed) as caught:
        environments.builds.run(spec, secrets=secrets)
    log = environments.folders.log_path(spec.hash).read_text()
    (build,) = environments.records.all()
    for words in (log, caught.value.message, caught.value.hint, build.error):
        for hidden in (secret, encoded, server_secret, late):
            assert hidden not in words
    assert "*" * len(secret) in log and "*" * len(server_secret) in log and "*" * len(late) in log
    assert len(asked_for) > 1


METADATA_ALONE = """
import pathlib
def prepare_metadata_for_build_wheel(folder, settings=None):
    info = pathlib.Path(folder, "compiled-2.0.dist-info")
    info.mkdir()
    text = "Metadata-Version: 2.1\\nName: compiled\\nVersion: 2.0\\n"
    info.joinpath("METADATA").write_text(text)
    info.joinpath("WHEEL").write_text("Wheel-Version: 1.0\\n")
    return info.name
def build_wheel(*arguments):
    raise SystemExit("not this compiler")
"""


@pytest.mark.parametrize("backend", ["raise SystemExit('not this Python')\n", METADATA_ALONE])
def test_a_version_that_cannot_be_built_gives_way_to_one_with_a_wheel(
    environments: Environments, machine: Machine, backend: str
) -> None:
    """As a release so old that it names no Python it can't do with."""
    wheels.put_source(machine.wheels, "compiled", "2.0", backend)
    wheels.put(machine.wheels, "compiled", "1.0")
    wheels.put(machine.wheels, "user", "1.0", requires=("compiled",))
    spec = asked(environments, "user")
    folder = environments.builds.run(spec)
    assert python(folder, "import compiled; print(compiled.__version__)") == "1.0"
    log = environments.folders.log_path(spec.hash).read_text()
    assert "`compiled` can't be built here: trying versions with a wheel" in log


OLD_USER = """
import pathlib
def get_requires_for_build_wheel(settings=None):
    return []
def prepare_metadata_for_build_wheel(folder, settings=None):
    info = pathlib.Path(folder, "user-1.0.dist-info")
    info.mkdir()
    text = "Metadata-Version: 2.1\\nName: user\\nVersion: 1.0\\nRequires-Dist: compiled\\n"
    info.joinpath("METADATA").write_text(text)
    info.joinpath("WHEEL").write_text("Wheel-Version: 1.0\\n")
    return info.name
def build_wheel(folder, *others):
    name = "user-1.0-py3-none-any.whl"
    pathlib.Path(folder, name).write_bytes(WHEEL)
    return name
"""


def test_old_sources_that_came_with_one_that_cannot_be_built_give_way_too(
    environments: Environments, machine: Machine, tmp_path: Path
) -> None:
    """As a `shap` that still uses `np.int`, taken for the sake of the newest `numpy`."""
    for version in ("1.0", "2.0"):
        wheels.put(machine.wheels, "base", version)
    wheels.put_source(machine.wheels, "compiled", "1.0", METADATA_ALONE.replace("2.0", "1.0"))
    wheels.put(machine.wheels, "compiled", "2.0")
    old = wheels.put(tmp_path / "old", "user", "1.0", requires=("compiled",)).read_bytes()
    wheels.put_source(machine.wheels, "user", "1.0", f"WHEEL = {old!r}\n{OLD_USER}")
    wheels.put(machine.wheels, "user", "2.0", requires=("base<2",))
    wheels.put(machine.wheels, "middle", "1.0", requires=("user",))
    wheels.put(machine.wheels, "middle", "2.0", requires=("user", "compiled<2"))
    folder = environments.builds.run(asked(environments, "base", "middle"))
    code = "import base, user; print(base.__version__, user.__version__)"
    assert python(folder, code) == "1.0 2.0"


def test_plain_python_has_pip(environments: Environments) -> None:
    folder = environments.builds.run(environments.resolver.resolve("azureml:python@latest"))
    assert python(folder, "import pip, sys; print(sys.prefix)") == str(folder)


def test_an_environment_stays_as_it_was_first_built(
    environments: Environments, machine: Machine
) -> None:
    wheels.put(machine.wheels, "alpha", "1.0")
    spec = asked(environments, "alpha")
    folder = environments.builds.run(spec)
    image_folder.remove(folder)
    wheels.put(machine.wheels, "alpha", "2.0")
    assert python(environments.builds.run(spec), "import alpha; print(alpha.__version__)") == "1.0"


def test_one_that_came_beside_an_older_database_is_ready_by_its_first_build(
    environments: Environments, machine: Machine
) -> None:
    wheels.put(machine.wheels, "alpha", "1.0")
    spec = asked(environments, "alpha")
    folder = environments.builds.run(spec)
    with environments.db.write() as connection:
        connection.execute(delete(environment_builds))
    builds = RequestedBuilds(environments, lambda spec: {})
    builds.begin(spec)
    eventually(lambda: builds.show(spec.hash, 0)["status"] == "ready", "the build is recorded")
    builds.close()
    assert environments.folders.find(spec) == folder
    assert to_json.build_json(environments, spec)["packages"] == ["alpha==1.0"]
    assert builds_begun(environments, spec) == 1


def test_sixteen_threads_make_one_build(environments: Environments, machine: Machine) -> None:
    wheels.put(machine.wheels, "alpha", "1.0")
    spec = asked(environments, "alpha")
    with ThreadPoolExecutor(16) as pool:
        folders = list(pool.map(lambda _: environments.builds.run(spec), range(16)))
    assert set(folders) == {environments.folders.find(spec)}
    assert builds_begun(environments, spec) == 1


@pytest.mark.timeout(360)
def test_two_processes_make_one_build(environments: Environments, machine: Machine) -> None:
    wheels.put(machine.wheels, "alpha", "1.0")
    builders = [start_builder(machine, "alpha") for _ in range(2)]
    output = [builder.communicate(timeout=300) for builder in builders]
    spec = asked(environments, "alpha")
    assert {out.strip() for out, _ in output} == {str(environments.folders.find(spec))}, output
    assert builds_begun(environments, spec) == 1


@pytest.mark.slow
def test_a_killed_builder_leaves_nothing_incomplete(
    environments: Environments, machine: Machine
) -> None:
    marker = put_slow_source(machine, "slowly")
    builder = start_builder(machine, "slowly")
    wait_for(marker)
    builder.send_signal(signal.SIGKILL)
    builder.communicate()
    spec = asked(environments, "slowly")
    assert environments.folders.find(spec) is None and unfinished(machine)
    (machine.wheels / "slowly-1.0.tar.gz").unlink()
    wheels.put(machine.wheels, "slowly", "1.0")
    assert (
        python(environments.builds.run(spec), "import slowly; print(slowly.__version__)") == "1.0"
    )
    assert not unfinished(machine)


def test_a_canceled_build_ends_uv_and_may_be_tried_again(
    environments: Environments, machine: Machine
) -> None:
    marker = put_slow_source(machine, "slowly")
    spec = asked(environments, "slowly")
    with pytest.raises(BuildCanceled):
        environments.builds.run(spec, canceled=marker.exists)
    assert environments.records.all()[0].status == "canceled" and not unfinished(machine)
    (machine.wheels / "slowly-1.0.tar.gz").unlink()
    wheels.put(machine.wheels, "slowly", "1.0")
    assert environments.builds.run(spec) == environments.folders.find(spec)


def test_a_waiting_caller_may_give_up(environments: Environments, machine: Machine) -> None:
    marker = put_slow_source(machine, "slowly")
    spec, stop = asked(environments, "slowly"), threading.Event()

    def build() -> None:
        with pytest.raises(BuildCanceled):
            environments.builds.run(spec, canceled=stop.is_set)

    thread = threading.Thread(target=build)
    thread.start()
    wait_for(marker)
    with pytest.raises(BuildCanceled):
        environments.builds.run(spec, canceled=lambda: True)
    stop.set()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("requirement", ["gamma", "alpha==9", "alpha>=2"])
def test_a_package_that_does_not_exist_is_named(
    environments: Environments, machine: Machine, requirement: str
) -> None:
    wheels.put(machine.wheels, "alpha", "1.0")
    spec = asked(environments, requirement)
    with pytest.raises(BuildFailed, match=f"package `{requirement[:5]}`") as caught:
        environments.builds.run(spec)
    assert caught.value.hint and len(caught.value.message) < 300
    assert requirement[:5] in environments.folders.log_path(spec.hash).read_text()
    assert environments.folders.find(spec) is None and not unfinished(machine)
    assert environments.records.all()[0].status == "failed"


def test_waiting_callers_share_a_failure_and_a_later_build_tries_again(
    environments: Environments, machine: Machine
) -> None:
    all_wait = machine.wheels.parent / "all-wait"
    code = f"import os, time\nwhile not os.path.exists({str(all_wait)!r}):\n    time.sleep(0.05)\n"
    source = wheels.put_source(machine.wheels, "broken", "1.0", f"{code}raise SystemExit('no')\n")
    spec = asked(environments, "broken")
    waiting: set[int] = set()

    def message(number: int) -> str:
        def canceled() -> bool:
            # Called for the builder and for each caller that waits for it.
            waiting.add(number)
            if len(waiting) == 8:
                all_wait.touch()
            return False

        with pytest.raises(BuildFailed) as caught:
            environments.builds.run(spec, canceled)
        return str(caught.value.message)

    with ThreadPoolExecutor(8) as pool:
        messages = set(pool.map(message, range(8)))
    assert len(messages) == 1 and "`broken`" in messages.pop()
    assert builds_begun(environments, spec) == 1
    source.unlink()
    wheels.put(machine.wheels, "broken", "1.0")
    assert environments.builds.run(spec) == environments.folders.find(spec)
    assert "can't be installed" in environments.folders.log_path(spec.hash).read_text()


def test_a_missing_python_is_named(environments: Environments) -> None:
    spec = environments.resolver.resolve({"conda_file": {"dependencies": ["python=3.5.2"]}})
    with pytest.raises(BuildFailed, match=r"Python 3\.5\.2"):
        environments.builds.run(spec)


# Builds of torch


def put_torches(machine: Machine) -> None:
    wheels.put(machine.wheels, "nvidia-cublas", "13.0")
    wheels.put(machine.wheels, "torch", "2.14.0", requires=("nvidia-cublas",))
    recorder = (
        "defined, given = [], []\n\n\nclass library:\n    class Library:\n"
        "        def __init__(self, name, kind):\n            self.name = name\n\n"
        "        def define(self, schema):\n"
        "            defined.append(self.name + '::' + schema.split('(')[0])\n\n"
        "        def impl(self, name, function, key):\n"
        "            given.append((self.name + '::' + name, key))\n"
    )
    wheels.put(machine.wheels, "torch", "2.13.0+cpu", text=recorder)
    wheels.put(machine.wheels, "torch", "2.12.0+cpu")
    wheels.put(machine.wheels, "timm", "1.0", requires=("torch>=2",))
    wheels.put(
        machine.wheels,
        "torchvision",
        "0.28.0",
        requires=("torch==2.13.0",),
        text="import torch\nassert 'torchvision::nms' in torch.defined\n",
    )


def versions(environments: Environments, spec: EnvironmentSpec) -> list[str]:
    environments.builds.run(spec)
    (build,) = environments.records.all()
    return [line.split()[0] for line in build.lock.splitlines() if "==" in line]


@pytest.mark.parametrize(
    ("requirement", "torch"),
    [
        ("torch", "2.13.0+cpu"),
        ("torch>=2", "2.13.0+cpu"),
        ("torch==2.13.0", "2.13.0+cpu"),
        ("torch==2.12.0", "2.12.0+cpu"),
        ("timm", "2.13.0+cpu"),
    ],
)
def test_without_a_gpu_torch_is_a_cpu_build(
    environments: Environments, machine: Machine, requirement: str, torch: str
) -> None:
    put_torches(machine)
    built_versions = versions(environments, asked(environments, requirement))
    assert f"torch=={torch}" in built_versions
    assert not [line for line in built_versions if line.startswith("nvidia")]


def test_with_a_gpu_torch_is_pypis_build(
    make_environments: MakeEnvironments, machine: Machine
) -> None:
    put_torches(machine)
    environments = make_environments("cuda")
    assert versions(environments, asked(environments, "torch")) == [
        "nvidia-cublas==13.0",
        "torch==2.14.0",
    ]


def test_a_torch_that_has_no_cpu_build_fails_before_anything_is_downloaded(
    environments: Environments, machine: Machine
) -> None:
    wheels.put(machine.wheels, "nvidia-cublas", "13.0")
    wheels.put(machine.wheels, "torch", "2.14.0", requires=("nvidia-cublas",))
    spec = asked(environments, "torch")
    with pytest.raises(BuildFailed, match="package `torch`") as caught:
        environments.builds.run(spec)
    assert caught.value.hint
    assert "uv pip install --compile" not in environments.folders.log_path(spec.hash).read_text()


def test_gpu_packages_are_skipped_unless_requested(
    environments: Environments, machine: Machine
) -> None:
    wheels.put(machine.wheels, "nvidia-nccl-cu12", "2.0")
    wheels.put(machine.wheels, "boost", "1.0", requires=("nvidia-nccl-cu12",))
    assert versions(environments, asked(environments, "boost")) == ["boost==1.0"]
    spec = asked(environments, "boost", "nvidia-nccl-cu12")
    assert (environments.builds.run(spec) / "lib").exists()
    assert "nvidia-nccl-cu12==2.0" in environments.records.all()[0].lock


def test_torchvision_of_pypi_gets_its_hook_beside_a_cpu_torch(
    environments: Environments, machine: Machine
) -> None:
    put_torches(machine)
    folder = environments.builds.run(asked(environments, "torchvision"))
    assert python(folder, "import torchvision, torch; print(torch.defined, torch.given)") == (
        "['torchvision::nms', 'torchvision::qnms'] [('torchvision::nms', 'CPU')]"
    )
    idle = python(folder, "import sys; print('torch' in sys.modules)")
    assert idle == "False"


@pytest.mark.end_to_end
@pytest.mark.timeout(600)
def test_the_machines_own_torch_with_torchvision(tmp_path: Path) -> None:
    """Real packages with this machine's configuration: no CUDA package, torchvision works."""
    from torchyard.base.clock import SystemClock
    from torchyard.base.db import Database

    database = Database(f"sqlite:///{tmp_path}/torchyard.db")
    database.upgrade()
    environments = Environments(tmp_path, database, SystemClock(), os.environ)
    if environments.resolver.platform.accelerator != "cpu":
        pytest.skip("this machine has a GPU")
    spec = asked(environments, "torch==2.13.0", "torchvision")
    folder = environments.builds.run(spec)
    assert "nvidia-" not in environments.records.all()[0].lock
    database.close()
    code = (
        "import torch, torchvision\nfrom torchvision.transforms import v2\n"
        "model = torchvision.models.resnet18()\n"
        "print(tuple(model(v2.RandomHorizontalFlip()(torch.rand(1, 3, 64, 64))).shape))"
    )
    assert python(folder, code) == "(1, 1000)"
