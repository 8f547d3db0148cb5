"""An open shell keeps its environment."""

from __future__ import annotations

import fcntl

from torchyard.environments.assembly import Environments


def test_an_environment_with_a_shell_in_it_is_not_removed(environments: Environments) -> None:
    spec = environments.resolver.resolve("python")
    folder = environments.builds.run(spec)
    with (
        open(environments.folders.shells_file(spec), "rb") as first,
        open(environments.folders.shells_file(spec), "rb") as second,
    ):
        fcntl.flock(first, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(second, fcntl.LOCK_SH | fcntl.LOCK_NB)
        assert not environments.folders.remove(spec.hash, lambda connection: False)
        assert environments.folders.find(spec) == folder
        # It does not block builders.
        assert environments.builds.run(spec) == folder
    assert [hash for hash, _ in environments.folders.all()] == [spec.hash]
    assert environments.folders.remove(spec.hash, lambda connection: False)
    assert environments.folders.find(spec) is None
