"""The advisories that a workspace was sent, and the vulnerabilities of packages by them.

Owns: taking them in pieces, replacing the set that was there, how old it may be.
Leaves: the entries' format to osv.py, SQL to records/store.py.
Always: a set counts once its last piece came, and until then the one before it does; an audit says
of when its advisories are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from torchyard.base.clock import Clock, to_text
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, InvalidSpec
from torchyard.releases.records import store
from torchyard.releases.records.types import AdvisorySet
from torchyard.releases.vulnerabilities import osv
from torchyard.releases.vulnerabilities.osv import Vulnerability
from torchyard.workspaces import ownership

MOST_AT_ONCE = 2000
_ID = re.compile(r"[0-9a-f]{8,64}")
_HINT = "send them with `yard environment audit NAME --osv FILE|FOLDER`"


def take(
    db: Database, clock: Clock, workspace: str, document: Mapping[str, Any], user: str
) -> dict[str, Any]:
    """Take a piece of a set; with `last`, the set replaces the one before.

    Args:
        document: `set`, hexadecimal and the same for all pieces; `entries` as OSV has them; `first`
            and `last` say that it is the first piece or the last.

    Raises:
        InvalidSpec: it is not such a piece.
        Forbidden: somebody else sent the set that is there.
    """
    set_id, entries = document.get("set"), document.get("entries")
    if not isinstance(set_id, str) or not _ID.fullmatch(set_id):
        raise InvalidSpec("`set` is not 8 to 64 hexadecimal digits", "draw one", at=["set"])
    if not isinstance(entries, list) or len(entries) > MOST_AT_ONCE:
        raise InvalidSpec(
            f"`entries` is not a list of up to {MOST_AT_ONCE}",
            "send them in pieces of the same `set`",
            at=["entries"],
        )
    read = [
        osv.stored_fields(entry, ["entries", position]) for position, entry in enumerate(entries)
    ]
    rows = [(package, entry) for entry in read for package in osv.packages_of(entry)]
    with db.write() as connection:
        before = store.set_of(connection, workspace)
        if before is not None:
            ownership.refuse(
                connection,
                ownership.ADVISORIES,
                workspace,
                user,
                before.sent_by,
                f"the set of advisories of workspace `{workspace}`",
            )
        is_known = before is not None and before.id == set_id
        if not is_known:
            set_ids = [before.id] if before is not None else []
            # What an attempt to send the same set left behind goes with its first piece.
            set_ids += [] if document.get("first") else [set_id]
            store.drop_unfinished(connection, workspace, set_ids)
            store.add_advisories(connection, workspace, set_id, rows)
        if document.get("last") is not True:
            return {"set": set_id, "last": False}
        # The same set, sent again, is as new as the day it was sent on.
        count = store.count_advisories(connection, workspace, set_id)
        new = AdvisorySet(workspace, set_id, clock.now(), user, count)
        store.replace_set(connection, new)
    return to_json(new)


def of(db: Database, workspace: str) -> AdvisorySet | None:
    """The set that counts; None before the first one."""
    with db.read() as connection:
        return store.set_of(connection, workspace)


def vulnerabilities(
    db: Database, workspace: str, packages: Mapping[str, str]
) -> tuple[list[Vulnerability], AdvisorySet]:
    """Those of these packages (version by normal name), and the set by which they are known.

    Raises:
        InvalidInput: the workspace has no advisories.
    """
    with db.read() as connection:
        advisory_set = store.set_of(connection, workspace)
        if advisory_set is None:
            raise InvalidInput(
                f"workspace `{workspace}` has no advisories, so nothing is known of "
                "vulnerabilities",
                _HINT,
                code="no_advisories",
            )
        entries = store.about(connection, workspace, advisory_set.id, sorted(packages))
    # An entry about two packages is in two rows.
    distinct = {entry["id"]: entry for entry in entries}
    return osv.matching(distinct.values(), packages), advisory_set


def age_days(advisory_set: AdvisorySet, now: datetime) -> int:
    return max(0, (now - advisory_set.replaced_at).days)


def to_json(advisory_set: AdvisorySet) -> dict[str, Any]:
    return {
        "set": advisory_set.id,
        "last": True,
        "replaced_at": to_text(advisory_set.replaced_at),
        "sent_by": advisory_set.sent_by,
        "count": advisory_set.count,
    }
