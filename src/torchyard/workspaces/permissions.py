"""The permissions, and the minimum role for each.

Owns: the permissions, which roles have them, what a job's token may never do.
Leaves: which route needs what to the routes (see guarded_routes.py), authentication and refusals
to access.py.
Always: roles are ordered; what a job's token may never do does not depend on its owner's role.
"""

from __future__ import annotations

from enum import Enum

from torchyard.workspaces.types import Role


class Permission(Enum):
    """The value says in words what is permitted; messages put it after `to`."""

    OPEN = "ask without a token"
    WORKER = "report for an attempt"
    SELF = "see your own account"
    READ = "see what is in the workspace"
    LOG = "log to runs"
    JOB = "change jobs and runs"
    UPLOAD = "upload files"
    WRITE = "submit jobs, and register data and models"
    ENTER = "enter running jobs"
    COMPUTE = "create, change or delete compute"
    JOIN = "join a machine to a cluster"
    ACCEPT = "accept an invitation"
    SETTINGS = "change the workspace"
    PEOPLE = "grant roles and set quotas"
    SERVER = "administer the server"
    METRICS = "read the server's metrics"


MINIMUM_ROLE: dict[Permission, Role] = {
    Permission.READ: Role.READER,
    Permission.LOG: Role.DATA_SCIENTIST,
    Permission.JOB: Role.DATA_SCIENTIST,
    Permission.UPLOAD: Role.DATA_SCIENTIST,
    Permission.WRITE: Role.DATA_SCIENTIST,
    Permission.ENTER: Role.DATA_SCIENTIST,
    Permission.COMPUTE: Role.CONTRIBUTOR,
    Permission.JOIN: Role.CONTRIBUTOR,
    Permission.SETTINGS: Role.CONTRIBUTOR,
    Permission.PEOPLE: Role.OWNER,
    Permission.SERVER: Role.OWNER,
}
# These apply to the server, not to one workspace: only a role in every workspace counts.
SERVER_WIDE = frozenset({Permission.SELF, Permission.SERVER, Permission.METRICS})
# With these, data scientists can change their own jobs and runs; contributors can change all.
OWN_JOBS_ONLY = frozenset({Permission.LOG, Permission.JOB})
# With this, everybody below an owner can enter their own jobs only: what runs there is its owner's.
OWN_BELOW_OWNER = frozenset({Permission.ENTER})
# Not while the home is held, see base/home/hold.py.
CHANGES = frozenset(
    {
        *(Permission.LOG, Permission.JOB, Permission.UPLOAD, Permission.WRITE, Permission.ENTER),
        *(Permission.COMPUTE, Permission.JOIN, Permission.ACCEPT, Permission.SETTINGS),
    }
)
DENIED_TO_JOBS = frozenset(
    {Permission.PEOPLE, Permission.SERVER, Permission.METRICS, Permission.ENTER}
)
# Too frequent to record, and of no interest to an audit; GET requests are not recorded either.
UNAUDITED = frozenset(
    {Permission.OPEN, Permission.WORKER, Permission.READ, Permission.LOG, Permission.UPLOAD}
)
