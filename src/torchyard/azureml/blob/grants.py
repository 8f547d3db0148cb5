"""Permissions for containers: from a request to the container that it may use.

Owns: which permission of a signature, and which permission of a person, an operation needs.
Leaves: signatures to signatures.py, people's permissions to workspaces/access.py.
Always: both are checked for each request: a signature opens no more than the person may use at that
moment; for a job's files a person needs permission to change the job, as everywhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fastapi import Request

from torchyard.azureml.blob import places, signatures
from torchyard.azureml.blob.errors import BadSignature, NotGranted, Unsigned
from torchyard.azureml.blob.places import Container, Containers
from torchyard.base.clock import Clock
from torchyard.base.errors import NotAuthenticated, NotFound
from torchyard.workspaces.access import refuse_foreign
from torchyard.workspaces.guarded_routes import permission_of
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Identity


class CheckPermission(Protocol):
    """See Access.granted."""

    def __call__(
        self,
        request: Request,
        permission: Permission,
        workspace: str,
        token_hash: str = "",
    ) -> Identity: ...


@dataclass(frozen=True)
class Grants:
    """
    Args:
        key: for checking signatures.
        owner_of: from a workspace and a job's name to the job's owner; empty when there is none.
    """

    key: bytes
    clock: Clock
    containers: Containers
    granted: CheckPermission
    owner_of: Callable[[str, str], str]

    def admit(self, request: Request, name: str, path: str, letters: str) -> Container:
        """The container, if the request may use it.

        Args:
            path: the blob, or the prefix of a list.
            letters: one of these permissions is enough.

        Raises:
            Unsigned, NotAuthenticated: the caller is unknown.
            BadSignature, NotGranted, Forbidden: the caller may not do this.
            NoContainer: the container does not exist.
        """
        permission = permission_of(request)
        if "sig" not in request.query_params:
            # Authenticate the caller before revealing whether a container exists.
            self._person(request, Permission.SELF, "", "")
            return self._reached(request, permission, name, path, "")
        signature = signatures.read(self.key, request.query_params, name, path, self.clock.now())
        if not signature.covers(path):
            raise NotGranted("the signature of this URL opens another folder or blob")
        try:
            container = self._reached(request, permission, name, path, signature.token_hash)
        except NotAuthenticated as error:
            raise BadSignature(
                f"the token that this URL was requested with is no longer valid: {error.message}",
                error.hint,
            ) from error
        # After the person's permissions, whose errors say more.
        if not set(letters) & set(signature.permissions):
            raise NotGranted(
                f"the signature of this URL permits `{signature.permissions}`, and "
                f"{request.method} needs `{letters[0]}`",
                "request a URL that permits it",
            )
        return container

    def _reached(
        self, request: Request, permission: Permission, name: str, path: str, token_hash: str
    ) -> Container:
        workspace = self.containers.workspace_of(name)
        try:
            self._person(request, permission, workspace, token_hash)
        except NotFound as error:
            raise self.containers.forget(name) from error
        container = self.containers.get(name)
        store = container.datastore.name
        if permission not in (Permission.UPLOAD, Permission.WRITE):
            return container
        places.refuse_fixed(store, path)
        job = places.job_of(store, path)
        if job:
            of_job = Permission.LOG if permission is Permission.UPLOAD else Permission.JOB
            person = self._person(request, of_job, workspace, token_hash)
            refuse_foreign(person, self.owner_of(workspace, job), f"job `{job}`")
        return container

    def _person(
        self,
        request: Request,
        permission: Permission,
        workspace: str,
        token_hash: str,
    ) -> Identity:
        kind = request.headers.get("authorization", "").partition(" ")[0].lower()
        if not token_hash and kind != "bearer":
            raise Unsigned(
                "the request carries neither a signature nor a token"
                if kind != "sharedkey"
                else "the request is signed with an account key, and this server has none",
                "use the URL, or the credential, from the workspace",
            )
        return self.granted(request, permission, workspace, token_hash)
