"""pip's configuration, as uv understands it."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchyard.environments.packages import accelerators, machine_config


def read(tmp_path: Path, **variables: str) -> machine_config.MachineConfig:
    return machine_config.read({"XDG_CONFIG_DIRS": str(tmp_path / "none"), **variables}, tmp_path)


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_files_are_read_in_pips_order_and_variables_win(tmp_path: Path) -> None:
    write(tmp_path / ".pip" / "pip.conf", "[global]\nindex-url = https://old/\ntimeout = 5\n")
    write(
        tmp_path / ".config" / "pip" / "pip.conf",
        "[global]\nindex_url = https://new/simple\nextra-index-url = https://a/\n  https://b/\n"
        "[install]\nfind-links = /w1\n  /w2\n",
    )
    variables_set = read(
        tmp_path, PIP_TIMEOUT="60", PIP_TRUSTED_HOST="a b", PIP_CERT="/ca.pem"
    ).variables
    assert variables_set["UV_DEFAULT_INDEX"] == "https://new/simple"
    assert variables_set["UV_EXTRA_INDEX_URL"] == "https://a/ https://b/"
    assert variables_set["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert variables_set["UV_FIND_LINKS"] == "/w1,/w2"
    assert variables_set["UV_INSECURE_HOST"] == "a b"
    assert variables_set["SSL_CERT_FILE"] == "/ca.pem"
    assert variables_set["UV_HTTP_TIMEOUT"] == "60"


def test_a_named_file_wins_over_the_users_and_dev_null_means_none(tmp_path: Path) -> None:
    write(tmp_path / ".config" / "pip" / "pip.conf", "[global]\nindex-url = https://user/\n")
    write(tmp_path / "named.conf", "[global]\nindex-url = https://named/\n")
    configured = read(tmp_path, PIP_CONFIG_FILE=str(tmp_path / "named.conf"))
    assert configured.variables["UV_DEFAULT_INDEX"] == "https://named/"
    assert "UV_DEFAULT_INDEX" not in read(tmp_path, PIP_CONFIG_FILE="/dev/null").variables


def test_uvs_own_configuration_wins(tmp_path: Path) -> None:
    pip = {"PIP_INDEX_URL": "https://pip/", "PIP_CONFIG_FILE": "/dev/null", "PIP_CERT": "/ca"}
    variables_read = read(tmp_path, **pip, UV_DEFAULT_INDEX="https://uv/", SSL_CERT_FILE="/own")
    assert variables_read.variables["UV_DEFAULT_INDEX"] == "https://uv/"
    assert variables_read.variables["SSL_CERT_FILE"] == "/own"
    write(tmp_path / ".config" / "uv" / "uv.toml", '[[index]]\nurl = "https://toml/"\n')
    assert "UV_DEFAULT_INDEX" not in read(tmp_path, **pip).variables


def test_misleading_variables_do_not_reach_uv(tmp_path: Path) -> None:
    variables_set = read(
        tmp_path, VIRTUAL_ENV="/v", PYTHONPATH="/p", HTTPS_PROXY="http://p:1"
    ).variables
    assert set(variables_set) >= {"HTTPS_PROXY"}
    assert not {"VIRTUAL_ENV", "PYTHONPATH"} & set(variables_set)


def test_a_broken_file_is_ignored(tmp_path: Path) -> None:
    write(tmp_path / ".config" / "pip" / "pip.conf", "no section\n")
    assert "UV_DEFAULT_INDEX" not in read(tmp_path).variables


def test_lines_are_scrubbed_of_the_machines_configuration(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        PIP_CONFIG_FILE="/dev/null",
        PIP_INDEX_URL="https://me:secret@mirror.corp/simple",
        PIP_FIND_LINKS="/srv/wheels",
        HTTPS_PROXY="http://u:p@proxy.corp:3128",
    )
    line = config.scrub(
        "fetch https://me:secret@mirror.corp/simple/six from file:///srv/wheels by "
        "http://u:p@proxy.corp:3128, host mirror.corp, https://x:y@other.org/"
    )
    for secret in ("secret", "mirror.corp", "/srv/wheels", "proxy.corp", "x:y"):
        assert secret not in line
    assert "six" in line and "other.org" in line


def test_cpu_builds_are_found_in_folders_and_index_pages(tmp_path: Path) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name in (
        "torch-2.9.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl",
        "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl",
        "torch-2.14.0+cpu-cp312-cp312-manylinux_2_28_x86_64.whl",
        "torch-2.15.0-cp311-cp311-manylinux_2_28_x86_64.whl",
        "torch-2.16.0+cpu-cp311-cp311-win_amd64.whl",
        "torchvision-0.28.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl",
    ):
        (folder / name).touch()
    page = tmp_path / "simple" / "torch" / "index.html"
    wheel = "torch-2.10.0%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl"
    write(page, f'<a href="../../f/{wheel}#sha256=0">x</a>\n<a href="{wheel}">y</a>')
    config = read(
        tmp_path,
        PIP_CONFIG_FILE="/dev/null",
        PIP_FIND_LINKS=str(folder),
        PIP_EXTRA_INDEX_URL=f"file://{tmp_path}/simple file://{tmp_path}/missing",
    )
    if accelerators._fits("manylinux_2_28_x86_64"):
        assert accelerators.cpu_torches(config, "3.11") == ["2.13.0+cpu", "2.10.0+cpu", "2.9.0+cpu"]


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        (["torch==2.13.0+cpu", "numpy==1"], []),
        (["nvidia-cublas==13", "nvidia_nccl_cu12==2", "nvidia-ml-py==12"], None),
    ],
)
def test_gpu_packages(packages: list[str], expected: list[str] | None) -> None:
    names = ["nvidia-cublas", "nvidia-nccl-cu12"] if expected is None else expected
    assert accelerators.gpu_packages(packages) == names
