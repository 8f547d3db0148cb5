"""Dockerfiles as far as torchyard reads them, and the output of failed builds."""

from __future__ import annotations

import pytest

from torchyard.environments.images import dockerfile
from torchyard.environments.names import catalogue, image_names

FILE = """\
# syntax=docker/dockerfile:1
ARG REGISTRY=mcr.microsoft.com/azureml
ARG BASE="${REGISTRY}/curated/acpt-pytorch-2.2-cuda12.1:latest"
FROM --platform=linux/amd64 ${BASE} AS first
ARG BASE=never-this
RUN <<EOF
FROM nothing-at-all
EOF
RUN echo \\
    # in the middle of a line
    FROM neither
from first as second
FROM \\
    debian:12-slim
COPY --from=first /x /x
FROM scratch
FROM ${UNSET:-python:3.11}
"""


def test_the_images_that_a_dockerfile_starts_from() -> None:
    from_lines = [
        (from_line.name, from_line.stage, from_line.start, from_line.end)
        for from_line in dockerfile.images(FILE)
    ]
    assert from_lines == [
        ("mcr.microsoft.com/azureml/curated/acpt-pytorch-2.2-cuda12.1:latest", "first", 3, 4),
        ("debian:12-slim", "", 12, 14),
        ("python:3.11", "", 16, 17),
    ]


def test_only_from_lines_are_changed() -> None:
    changed = dockerfile.with_images(FILE, {"debian:12-slim": "localhost/one:2"})
    before, after = FILE.splitlines(), changed.splitlines()
    assert after[12] == "FROM localhost/one:2"
    assert after[:12] == before[:12] and after[13:] == before[14:]
    rewritten = dockerfile.with_images(FILE, {dockerfile.images(FILE)[0].name: "localhost/base"})
    assert "FROM --platform=linux/amd64 localhost/base AS first\n" in rewritten


def test_a_file_with_another_escape_sign() -> None:
    text = "# escape=`\nFROM `\n  debian:12\nRUN echo C:\\\nFROM next\n"
    assert [from_line.name for from_line in dockerfile.images(text)] == ["debian:12", "next"]


@pytest.mark.parametrize(
    ("line", "environment"),
    [
        ("mcr.microsoft.com/azureml/curated/acpt-pytorch-2.2-cuda12.1:latest",
         "acpt-pytorch-2.2-cuda12.1"),
        ("acpt-pytorch-2.13-cpu", "acpt-pytorch-2.13-cpu"),
        ("acpt-pytorch-2.13-cpu:latest", "acpt-pytorch-2.13-cpu"),
        ("ACPT-pytorch-1.12", "ACPT-pytorch-1.12"),
        ("sklearn-1.5:3", "sklearn-1.5:3"),
        ("AzureML-ACPT-pytorch-1.13-py38-cuda11.7-gpu:3",
         "AzureML-ACPT-pytorch-1.13-py38-cuda11.7-gpu:3"),
        ("azureml:mine@latest", "azureml:mine@latest"),
        ("mcr.microsoft.com/aifx/acpt/stable-ubuntu2204-cu126-py310-torch280:biweekly.202501.1",
         "acpt-stable-ubuntu2204-cu126-py310-torch280"),
        # Other images: these are pulled.
        ("python:3.11-slim", ""),
        ("python", ""),
        ("docker.io/library/debian:12", ""),
        ("pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime", ""),
        ("mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04", ""),
        ("localhost/acpt-mine:1", ""),
    ],
)  # fmt: skip
def test_from_lines_that_name_an_environment(line: str, environment: str) -> None:
    assert catalogue.bare(image_names.published_in(line)) == catalogue.bare(environment)


@pytest.mark.parametrize(
    ("words", "step", "package"),
    [
        (  # podman 4.3
            'STEP 2/3: RUN pip install "no-such"\n'
            "ERROR: No matching distribution found for no-such\n"
            "subprocess exited with status 1\n"
            'Error: building at STEP "RUN pip install \\"no-such\\"": exit status 1\n',
            'RUN pip install "no-such"',
            "no-such",
        ),
        (  # docker's classic builder
            "Step 1/2 : FROM a\nStep 2/2 : RUN false\nThe command returned a non-zero code: 1\n",
            "RUN false",
            "",
        ),
        (  # BuildKit
            "------\n > [2/2] RUN apt-get install -y nothing:\n0.2 E: Unable to locate package "
            "nothing\n------\nERROR: failed to solve: process did not complete\n",
            "RUN apt-get install -y nothing",
            "nothing",
        ),
        ("something else\n", "", ""),
    ],
)
def test_what_failed(words: str, step: str, package: str) -> None:
    assert dockerfile.failed_step(words) == step
    assert dockerfile.missing_package(words) == package
