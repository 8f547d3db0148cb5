"""What is read of an image's files stays inside them, and never waits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchyard.environments.images import image_folder
from torchyard.environments.images.engine import ImageFacts

ONE_DATABASE = True


def make_image(folder: Path, path: str = "/usr/local/bin:/usr/bin") -> Path:
    """An image whose PATH is given; its root."""
    root = folder / image_folder.ROOT
    root.mkdir(parents=True)
    image_folder.write(folder, ImageFacts("id", variables={"PATH": path}), (), "fake")
    return root


def put_package(root: Path, name: str, library: str = "usr/lib/python3.11/site-packages") -> Path:
    information = root / library / f"{name}-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n\n")
    return information


def put_python(root: Path, folder: str = "usr/bin") -> None:
    (root / folder).mkdir(parents=True, exist_ok=True)
    (root / folder / "python3").touch()


def test_packages_are_those_of_the_first_python_on_the_path(tmp_path: Path) -> None:
    root = make_image(tmp_path)
    put_python(root)
    put_package(root, "Alpha_Beta")
    put_package(root, "gamma", "usr/lib/python3/dist-packages")
    old = root / "usr/lib/python3/dist-packages/delta-2.0.egg-info"
    old.write_text("Metadata-Version: 1.0\nName: delta\nVersion: 2.0\n")
    lock = image_folder.packages_as_lock(tmp_path)
    assert lock == "alpha-beta==1.0\ndelta==2.0\ngamma==1.0\n"


def test_links_of_an_image_mean_what_they_mean_in_it(tmp_path: Path) -> None:
    root = make_image(tmp_path, "/bin")
    (root / "bin").symlink_to("/usr/bin")
    (root / "lib").symlink_to("usr/lib")
    put_python(root)
    put_package(root, "alpha")
    assert image_folder.packages_as_lock(tmp_path) == "alpha==1.0\n"


@pytest.mark.parametrize("path", ["../../outside/bin", "/../../../outside/bin", "/out/bin"])
def test_a_path_of_an_image_leads_nobody_out(tmp_path: Path, path: str) -> None:
    folder = tmp_path / "images" / "one"
    root = make_image(folder, path)
    put_python(tmp_path / "images" / "outside", "bin")
    put_package(tmp_path / "images" / "outside", "secret", "lib/python3.11/site-packages")
    (root / "out").symlink_to(tmp_path / "images" / "outside")
    assert image_folder.packages_as_lock(folder) == ""


@pytest.mark.parametrize("kind", ["folder", "file", "fifo", "circle"])
def test_a_link_or_a_fifo_in_place_of_metadata_is_passed_over(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "image"
    root = make_image(folder)
    put_python(root)
    put_package(root, "alpha")
    outside = put_package(tmp_path / "outside", "secret")
    place = root / "usr/lib/python3.11/site-packages/secret-1.0.dist-info"
    if kind == "folder":
        place.symlink_to(outside)
    else:
        place.mkdir()
        if kind == "fifo":
            os.mkfifo(place / "METADATA")
        else:
            target = outside / "METADATA" if kind == "file" else Path("METADATA")
            (place / "METADATA").symlink_to(target)
    assert image_folder.packages_as_lock(folder) == "alpha==1.0\n"
