"""Images that skopeo brings to Docker's own registry."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from containers.docker_registry import registry
from torchyard.client.images import layout as layouts
from torchyard.client.images import push

__all__ = ["registry"]

pytestmark = pytest.mark.containers


@pytest.mark.parametrize("name", ["image.tar", "image"])
def test_a_layout_is_pushed_with_its_digest(registry: str, tmp_path: Path, name: str) -> None:
    with layouts.written(tmp_path / name) as layout:
        layer = layouts.add_layer(layout, "packages", [bytes(10240)])
        image = layouts.complete(layout, [layer], "amd64", {"Env": ["A=b"]}, "localhost/x:1")
    to = push.parse(f"{registry}/team/x").with_tag("1")
    push.run(tmp_path / name, to, plain_http=False)
    inspect = ["skopeo", "inspect", "--tls-verify=false", f"docker://{to}"]
    there = json.loads(subprocess.run(inspect, check=True, capture_output=True).stdout)
    assert there["Digest"] == image.manifest.digest and there["Env"] == ["A=b"]


def test_a_registry_that_does_not_answer_is_told(tmp_path: Path) -> None:
    with layouts.written(tmp_path / "image") as layout:
        layouts.complete(layout, [], "amd64", {}, "localhost/x:1")
    with pytest.raises(push.UploadFailed) as failed:
        push.run(tmp_path / "image", push.parse("127.0.0.1:9/x:1"), plain_http=True)
    assert "127.0.0.1:9" in failed.value.message and "skopeo login" in failed.value.hint
