"""Which releases of torchyard talk to each other.

Owns: naming a program's version in its requests, refusing one that is too far from the server's.
Leaves: workers, which a server knows by their plans, to jobs/.
Always: a program that isn't torchyard's is never refused; docs/reference/stability.md has the rule.
"""

from __future__ import annotations

import re
from functools import lru_cache

import torchyard
from torchyard.base.errors import Conflict

USER_AGENT = f"torchyard/{torchyard.__version__}"
_OURS = re.compile(r"torchyard/(?P<major>\d{1,4})\.(?P<minor>\d{1,4})\.\d{1,4}")


@lru_cache(maxsize=64)
def refusal(user_agent: str) -> Conflict | None:
    """Why a program with this User-Agent is not answered; None where it is."""
    theirs, ours = _OURS.match(user_agent), _OURS.match(USER_AGENT)
    if theirs is None or ours is None:
        return None
    same_major = theirs["major"] == ours["major"]
    if same_major and abs(int(theirs["minor"]) - int(ours["minor"])) <= 1:
        return None
    version = theirs[0].partition("/")[2]
    return Conflict(
        f"this server runs torchyard {torchyard.__version__}, and your torchyard is {version}: "
        "they are more than one minor release apart",
        f"install the server's: `pip install torchyard=={torchyard.__version__}`; or upgrade the "
        "server one release at a time",
        code="version_too_far",
    )
