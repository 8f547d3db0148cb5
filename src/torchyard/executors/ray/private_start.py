"""`python -I -S private_start.py`: become a program of Ray that has a private place.

Reads one line of JSON from standard input: `folder`, where the place is; `token`, of the cluster;
`words`, of the program, with `{sessions}` for Ray's sessions.

Owns: the folder that holds the token and Ray's sessions, closed to everybody else.
Leaves: what the program is to head_nodes.py.
Always: Ray opens its folder of sessions to everybody, whatever the umask, so one above it is
closed; the paths of sockets below it fit into 107 characters; nothing is put into a folder that
somebody else could have made. Standard library only, Python 3.9 and later.
"""

import json
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path

# Of 107, less what Ray adds.
_LONGEST_PLACE = 42
_NOTE = "sessions"
SESSIONS = "{sessions}"


def main() -> None:
    request = json.loads(sys.stdin.readline())
    os.umask(0o077)
    folder = Path(request["folder"])
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_private(folder):
        sys.exit(f"`{folder}` is open to others")
    token = folder / "token"
    draft = folder / "token.new"
    draft.write_text(request["token"])
    os.replace(draft, token)
    place = sessions(folder)
    # By it Ray would take a node on this machine for a head that still runs.
    (place / "ray_current_cluster").unlink(missing_ok=True)
    words = [word.replace(SESSIONS, str(place)) for word in request["words"]]
    variables = {
        **os.environ,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "TMPDIR": str(place),
        "RAY_TMPDIR": str(place),
    }
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.execve(words[0], words, variables)


def sessions(folder: Path) -> Path:
    """Where Ray's sessions go; the same again after a restart, as long as it is there."""
    place = folder / "s"
    if len(str(place)) > _LONGEST_PLACE:
        note = folder / _NOTE
        if note.exists() and is_private(Path(note.read_text()).parent):
            place = Path(note.read_text())
        else:
            place = short_folder() / "s"
            note.write_text(str(place))
    place.mkdir(mode=0o700, exist_ok=True)
    return place


def remove_sessions(folder: Path) -> None:
    """Remove the sessions that are kept outside of their folder."""
    note = folder / _NOTE
    place = Path(note.read_text()).parent if note.exists() else None
    if place is not None and is_private(place):
        shutil.rmtree(place, ignore_errors=True)


def short_folder() -> Path:
    """A new one, closed to others, whose path leaves enough for those of sockets."""
    shared = tempfile.gettempdir()
    if len(shared) > _LONGEST_PLACE - len("/ty-ray-xxxxxxxx/s"):
        shared = "/tmp"
    return Path(tempfile.mkdtemp(prefix="ty-ray-", dir=shared))


def is_private(folder: Path) -> bool:
    """Whether it is this user's, and closed to all others."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    is_closed = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077
    return is_closed and status.st_uid == os.geteuid()


if __name__ == "__main__":
    main()
