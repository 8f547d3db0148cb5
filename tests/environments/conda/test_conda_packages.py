"""Conda packages with the real py-rattler, from channels made by the test; no network."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from environments import builders, conda_channel, wheels
from environments.conda_channel import PREFIX
from environments.conftest import Machine, MakeEnvironments
from torchyard.base.errors import BuildFailed, InvalidSpec
from torchyard.environments import to_json
from torchyard.environments.assembly import Environments
from torchyard.environments.images import image_folder
from torchyard.environments.packages import conda_channels
from torchyard.environments.types import EnvironmentSpec
from torchyard.worker.files import thin_environment

rattler = pytest.importorskip("rattler", reason="needs torchyard[conda]")


@pytest.fixture
def channels(machine: Machine) -> Path:
    """A folder of channels, which this machine uses as anaconda.org."""
    folder = machine.home.parent / "channels"
    folder.mkdir()
    machine.variables["CONDA_CHANNEL_ALIAS"] = folder.as_uri()
    machine.variables["RATTLER_CACHE_DIR"] = str(machine.home.parent / "rattler")
    machine.variables["CONDARC"] = str(machine.home.parent / "condarc")
    return folder


@pytest.fixture
def environments(channels: Path, make_environments: MakeEnvironments) -> Environments:
    """Environments that read the variables after the channels are set."""
    return make_environments()


def asked(
    environments: Environments, *dependencies: object, channels: Sequence[str] = ("tools",)
) -> EnvironmentSpec:
    return environments.resolver.resolve(document(*dependencies, channels=channels))


def document(*dependencies: object, channels: Sequence[str] = ("tools",)) -> dict[str, object]:
    return {"conda_file": {"channels": list(channels), "dependencies": list(dependencies)}}


def put_greet(channels: Path, version: str = "1.0", form: str = ".conda") -> None:
    conda_channel.put(
        channels / "tools",
        "greet",
        version,
        {
            "bin/greet": f"#!/bin/sh\necho greet {version} in {PREFIX}\n",
            "share/greet/words.txt": "hello\n",
        },
        form=form,
    )


def said(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("form", [".conda", ".tar.bz2"])
def test_a_conda_tool_is_installed_with_pips_packages_and_locked(
    environments: Environments, machine: Machine, channels: Path, tmp_path: Path, form: str
) -> None:
    put_greet(channels, form=form)
    wheels.put(machine.wheels, "alpha", "1.0", script="alpha-says")
    spec = asked(environments, "greet", {"pip": ["alpha"]})
    folder = environments.builds.run(spec)
    # The paths in its files are those of its final folder, not of the one it was built in.
    assert said(folder / "bin" / "greet") == f"greet 1.0 in {folder}"
    assert said(folder / "bin" / "alpha-says") == str(folder / "bin" / "python")
    thin = thin_environment.create(folder, tmp_path / "thin")
    assert said(thin / "greet") == f"greet 1.0 in {folder}"
    assert (tmp_path / "thin" / "share" / "greet" / "words.txt").read_text() == "hello\n"
    lock = (machine.home / "environments" / f"{spec.hash}.lock.txt").read_text()
    assert '"name": "greet"' in lock and '"sha256"' in lock and "alpha==1.0" in lock
    for text in (lock, environments.folders.log_path(spec.hash).read_text()):
        assert str(channels) not in text and str(machine.wheels) not in text
    body = to_json.resolved_json(environments, "", document("greet", {"pip": ["alpha"]}))
    assert (body["conda_packages"], body["packages"]) == (["greet=1.0"], ["alpha==1.0"])


@pytest.mark.slow
def test_the_lock_wins_over_a_newer_channel(environments: Environments, channels: Path) -> None:
    put_greet(channels)
    spec = asked(environments, "greet")
    image_folder.remove(environments.builds.run(spec))
    put_greet(channels, "2.0")
    assert said(environments.builds.run(spec) / "bin" / "greet").startswith("greet 1.0")
    newer = asked(environments, "greet>=1")
    assert said(environments.builds.run(newer) / "bin" / "greet").startswith("greet 2.0")


@pytest.mark.slow
def test_a_package_that_differs_from_the_lock_is_refused(
    environments: Environments, machine: Machine, channels: Path
) -> None:
    put_greet(channels)
    spec = asked(environments, "greet")
    image_folder.remove(environments.builds.run(spec))
    shutil.rmtree(machine.variables["RATTLER_CACHE_DIR"])
    conda_channel.put(channels / "tools", "greet", "1.0", {"bin/greet": "#!/bin/sh\necho evil\n"})
    with pytest.raises(BuildFailed, match="`greet` differs from the lock"):
        environments.builds.run(spec)
    assert environments.folders.find(spec) is None


@pytest.mark.parametrize(
    ("dependency", "words"),
    [("nothing-here", "`nothing-here`"), ("greet>=9", "`greet`"), ("greet=9.*", "`greet`")],
)
def test_a_package_that_no_channel_has_is_named(
    environments: Environments, channels: Path, dependency: str, words: str
) -> None:
    put_greet(channels)
    with pytest.raises(BuildFailed, match=f"conda package {words}") as caught:
        environments.builds.run(
            asked(environments, "greet", dependency)
            if dependency[0] == "n"
            else asked(environments, dependency)
        )
    assert words in caught.value.hint


def test_a_channel_that_is_not_there_is_named(environments: Environments) -> None:
    with pytest.raises(BuildFailed, match="conda channel `elsewhere`") as caught:
        environments.builds.run(asked(environments, "greet", channels=["elsewhere"]))
    assert "configuration" in caught.value.hint


@pytest.mark.slow
def test_each_package_comes_from_the_first_channel_or_the_one_it_names(
    environments: Environments, channels: Path
) -> None:
    put_greet(channels)
    conda_channel.put(channels / "other", "greet", "3.0", {"bin/greet": "#!/bin/sh\necho other\n"})
    both = ("tools", "other")
    first = environments.builds.run(asked(environments, "greet", channels=both))
    assert said(first / "bin" / "greet").startswith("greet 1.0")
    assert (
        said(
            environments.builds.run(asked(environments, "other::greet", channels=both))
            / "bin"
            / "greet"
        )
        == "other"
    )
    # As in conda, a channel that only a package names is used, too.
    alone = environments.builds.run(asked(environments, "other::greet", channels=()))
    assert said(alone / "bin" / "greet") == "other"


@pytest.mark.slow
def test_mirrors_and_the_machines_own_channels_are_honoured(
    environments: Environments, machine: Machine, channels: Path
) -> None:
    put_greet(channels)
    (channels / "tools").rename(channels / "mirror")
    condarc = Path(machine.variables["CONDARC"])
    mirrors = f"[{channels.as_uri()}/gone, {channels.as_uri()}/mirror]"
    condarc.write_text(f"mirrored_channels:\n  tools: {mirrors}\nchannels: [tools]\n")
    listed = asked(environments, "greet")
    assert said(environments.builds.run(listed) / "bin" / "greet").startswith("greet 1.0")
    unnamed = asked(environments, "greet", channels=())
    assert unnamed.hash != listed.hash and unnamed.channels == ()
    assert said(environments.builds.run(unnamed) / "bin" / "greet").startswith("greet 1.0")
    for spec in (listed, unnamed):
        (build,) = [record for record in environments.records.all() if record.hash == spec.hash]
        assert "mirror" not in build.lock
        assert str(channels) not in environments.folders.log_path(spec.hash).read_text()


def test_condarc_maps_channel_names_to_urls(tmp_path: Path) -> None:
    (tmp_path / ".condarc").write_text(
        "channel_alias: https://${WHO}@conda.example.com/api\n"
        "custom_channels: {private: https://art.example.com/conda}\n"
        "custom_multichannels: {team: [one, https://two.example.com/c]}\n"
        "default_channels: [https://repo.example.com/main]\n"
        "ssl_verify: /etc/ssl/site.pem\nproxy_servers: {https: 'http://proxy:3128'}\n"
    )
    config = conda_channels.read({"WHO": "ada", "CONDA_CHANNELS": "a,b"}, tmp_path)
    assert config.channels == ("a", "b")
    alias = "https://ada@conda.example.com/api"
    assert config.urls_of("conda-forge") == [[f"{alias}/conda-forge"]]
    assert config.urls_of("pytorch/label/test") == [[f"{alias}/pytorch/label/test"]]
    assert config.urls_of("private") == [["https://art.example.com/conda/private"]]
    assert config.urls_of("team") == [[f"{alias}/one"], ["https://two.example.com/c"]]
    assert config.urls_of("defaults") == [["https://repo.example.com/main"]]
    assert config.urls_of("https://x.example.com/c/") == [["https://x.example.com/c"]]
    assert config.variables == {
        "HTTPS_PROXY": "http://proxy:3128",
        "SSL_CERT_FILE": "/etc/ssl/site.pem",
    }
    assert "https://art.example.com/conda" in config.private()


def test_without_the_extra_the_error_names_the_packages(
    make_environments: MakeEnvironments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rattler", None)
    environments = make_environments()
    with pytest.raises(InvalidSpec, match="`git`, `ffmpeg=6`") as caught:
        asked(environments, "python=3.11", "numpy", "git", "conda-forge::ffmpeg=6")
    assert "torchyard[conda]" in caught.value.hint and "`pip:`" in caught.value.hint
    # Packages that PyPI has, too, need no extra.
    assert asked(environments, "python=3.11", "numpy").requirements == ("numpy",)


@pytest.mark.parametrize("channels", ["conda-forge", [7], ["a b"], ["../here"]])
def test_invalid_channels_are_refused(environments: Environments, channels: object) -> None:
    with pytest.raises(InvalidSpec, match="channel"):
        environments.resolver.resolve(
            {"conda_file": {"channels": channels, "dependencies": ["greet"]}}
        )


@pytest.mark.slow
def test_python_is_condas_where_a_channel_has_it(
    environments: Environments, machine: Machine, channels: Path, tmp_path: Path
) -> None:
    put_greet(channels)
    version = conda_channel.put_python(channels / "tools")
    conda_channel.put(
        channels / "tools",
        "beta",
        "1.0",
        {
            "site-packages/beta/__init__.py": (
                "import sys\n\n\ndef main():\n    print(sys.prefix)\n"
            ),
            "site-packages/beta-1.0.dist-info/METADATA": (
                "Metadata-Version: 2.1\nName: beta\nVersion: 1.0\n"
            ),
        },
        depends=("python >=3.9",),
        noarch="python",
        entry_points=("beta-says = beta:main",),
    )
    # PyPI has a newer beta; conda's stays, since it fits.
    wheels.put(machine.wheels, "beta", "2.0")
    wheels.put(machine.wheels, "beta", "1.0")
    wheels.put(machine.wheels, "alpha", "1.0", requires=("beta",), script="alpha-says")
    short = ".".join(version.split(".")[:2])
    spec = asked(environments, f"python={short}", "beta", "greet", {"pip": ["alpha"]})
    folder = environments.builds.run(spec)
    asks = "import sys, alpha, beta; print(sys.base_prefix, beta.__file__, sep='\\n')"
    base, beta = said(folder / "bin" / "python", "-c", asks).splitlines()
    assert base == str(folder) and beta.startswith(str(folder))
    assert said(folder / "bin" / "python", "-m", "pip", "--version").startswith("pip ")
    # An attempt's own environment over it: its Python and its scripts.
    thin_folder = tmp_path / "thin"
    thin = thin_environment.create(folder, thin_folder)
    assert said(thin / "beta-says") == str(thin_folder)
    assert said(thin / "alpha-says") == str(thin_folder / "bin" / "python")
    assert said(thin / "python", "-c", "import sys, alpha, beta; print(sys.prefix)") == str(
        thin_folder
    )
    (build,) = environments.records.all()
    assert "beta==1.0" in build.lock and f'"version": "{version}"' in build.lock


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_builders_killed_while_conda_packages_come(
    environments: Environments, machine: Machine, channels: Path
) -> None:
    put_greet(channels)
    conda_channel.put_python(channels / "tools")
    asks = document("greet", f"python={sys.version_info[0]}.{sys.version_info[1]}")
    spec, chance = environments.resolver.resolve(asks), random.Random(7)
    for _ in range(8):
        then = (
            f"spec = environments.resolver.resolve({asks!r}); print(environments.builds.run(spec))"
        )
        builder = builders.start(machine.home, machine.database, machine.variables, then=then)
        time.sleep(chance.uniform(0.8, 4.0))
        builder.kill()
        builder.communicate()
        if environments.folders.find(spec) is not None:
            environments.folders.remove(spec.hash, lambda _: False)
        # Incomplete files in the cache of packages are not used later.
    folder = environments.builds.run(spec)
    assert said(folder / "bin" / "greet").startswith("greet 1.0")
    imports = "import ctypes, email, json, sqlite3, ssl, unittest, xml.dom; print(1)"
    assert said(folder / "bin" / "python", "-c", imports) == "1"
    assert not list((machine.home / "environments").glob(".building-*"))
