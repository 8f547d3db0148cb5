"""Names in registries, and a machine without skopeo."""

from __future__ import annotations

import pytest

from torchyard.base.errors import InvalidInput
from torchyard.client.images import push


@pytest.mark.parametrize(
    ("text", "expected", "is_here"),
    [
        ("registry.example.com/team/vision:3", "registry.example.com/team/vision:3", False),
        ("localhost:5000/x", "localhost:5000/x:2", True),
        ("127.0.0.1:5000/a/b", "127.0.0.1:5000/a/b:2", True),
        ("[::1]:5000/x", "[::1]:5000/x:2", True),
        ("localhost.example.com/x", "localhost.example.com/x:2", False),
    ],
)
def test_a_name_in_a_registry(text: str, expected: str, is_here: bool) -> None:
    to = push.parse(text).with_tag("2")
    assert (str(to), to.is_of_this_machine) == (expected, is_here)


@pytest.mark.parametrize("text", ["vision", "team/vision:3", "host.example/Vision", "-x.y/z", ""])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="not a place in a registry"):
        push.parse(text)


def test_a_machine_without_skopeo_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InvalidInput, match="`skopeo`") as refused:
        push.skopeo()
    assert "apt-get install skopeo" in refused.value.hint and "oci-archive" in refused.value.hint
