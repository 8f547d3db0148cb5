"""Somebody's shell in an environment keeps it."""

from __future__ import annotations

import fcntl

from torchyard.environments.actions import Environments


def test_an_environment_with_a_shell_in_it_is_not_removed(room: Environments) -> None:
    spec = room.resolve("python")
    folder = room.build(spec)
    with open(room.shells_file(spec), "rb") as one, open(room.shells_file(spec), "rb") as two:
        fcntl.flock(one, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(two, fcntl.LOCK_SH | fcntl.LOCK_NB)
        assert not room.remove(spec.hash, lambda connection: False)
        assert room.is_built(spec) == folder
        # Builders do not wait for it.
        assert room.build(spec) == folder
    assert [hash for hash, _ in room.folders()] == [spec.hash]
    assert room.remove(spec.hash, lambda connection: False)
    assert room.is_built(spec) is None
