"""The permissions, and the least role that has each.

Owns: what there is to permit, which roles may, what a job's token never may.
Leaves: which route needs what to the routes (see guarded_routes.py), finding out who asks and
turning them away to access.py.
Always: roles are ordered; what a job's token may never do does not depend on its owner's role.
"""

from __future__ import annotations

from enum import Enum

from torchyard.workspaces.types import Role


class Permission(Enum):
    """Value: in words what one may do; it follows `to`."""

    OPEN = "ask without a token"
    WORKER = "report for an attempt"
    SELF = "ask who one is"
    READ = "see what is in the workspace"
    LOG = "log to runs"
    JOB = "change jobs and runs"
    UPLOAD = "upload files"
    WRITE = "submit jobs, and register data and models"
    COMPUTE = "create, change or delete compute"
    SETTINGS = "change the workspace"
    PEOPLE = "give roles and quotas"
    SERVER = "administer the server"


MINIMUM_ROLE: dict[Permission, Role] = {
    Permission.READ: Role.READER,
    Permission.LOG: Role.DATA_SCIENTIST,
    Permission.JOB: Role.DATA_SCIENTIST,
    Permission.UPLOAD: Role.DATA_SCIENTIST,
    Permission.WRITE: Role.DATA_SCIENTIST,
    Permission.COMPUTE: Role.CONTRIBUTOR,
    Permission.SETTINGS: Role.CONTRIBUTOR,
    Permission.PEOPLE: Role.OWNER,
    Permission.SERVER: Role.OWNER,
}
# These are of the server, not of one workspace: a role counts only where it is everywhere.
SERVER_WIDE = frozenset({Permission.SELF, Permission.SERVER})
# With these a data scientist reaches their own jobs and runs; a contributor reaches all.
OWN_JOBS_ONLY = frozenset({Permission.LOG, Permission.JOB})
# What a running job may always do, whatever became of its owner's role.
ALWAYS_ALLOWED_TO_JOBS = frozenset({Permission.READ, Permission.LOG, Permission.JOB})
DENIED_TO_JOBS = frozenset({Permission.PEOPLE, Permission.SERVER})
# Too many to write down, and nothing that others would ask about; nor is any GET.
UNAUDITED = frozenset(
    {Permission.OPEN, Permission.WORKER, Permission.READ, Permission.LOG, Permission.UPLOAD}
)
