"""Somebody's shell in an environment keeps it."""

from __future__ import annotations

import fcntl

from torchyard.environments.actions import Environments


def test_an_environment_with_a_shell_in_it_is_not_removed(environments: Environments) -> None:
    spec = environments.resolve("python")
    folder = environments.build(spec)
    with (
        open(environments.shells_file(spec), "rb") as one,
        open(environments.shells_file(spec), "rb") as two,
    ):
        fcntl.flock(one, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(two, fcntl.LOCK_SH | fcntl.LOCK_NB)
        assert not environments.remove(spec.hash, lambda connection: False)
        assert environments.is_built(spec) == folder
        # Builders do not wait for it.
        assert environments.build(spec) == folder
    assert [hash for hash, _ in environments.folders()] == [spec.hash]
    assert environments.remove(spec.hash, lambda connection: False)
    assert environments.is_built(spec) is None
