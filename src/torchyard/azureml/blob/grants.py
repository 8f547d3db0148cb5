"""Who may do what with a container: from a request to the container, when it may be reached.

Owns: which permission of a signature, and which permission of a person, an operation needs.
Leaves: signatures to signatures.py, people's rights to workspaces/access.py.
Always: both are asked for each request: a signature opens no more than the person may by now; of a
job's files a person needs the permission to the job, as at every other door.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fastapi import Request

from torchyard.azureml.blob import places, signatures
from torchyard.azureml.blob.errors import BadSignature, NotGranted, Unsigned
from torchyard.azureml.blob.places import Container, Containers
from torchyard.base.clock import Clock
from torchyard.base.errors import NotAuthenticated, NotFound
from torchyard.workspaces import path_permissions
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Identity


class Granted(Protocol):
    """See Access.granted."""

    def __call__(
        self,
        request: Request,
        permission: Permission,
        workspace: str,
        token_hash: str = "",
        job: str = "",
    ) -> Identity: ...


@dataclass(frozen=True)
class Grants:
    """Args:
    key: what signatures are made with.
    """

    key: bytes
    clock: Clock
    containers: Containers
    granted: Granted

    def admit(self, request: Request, name: str, path: str, letters: str) -> Container:
        """The container, when the request may do that there.

        Args:
            path: the blob, or the prefix of those that are listed.
            letters: any of these permissions is enough.

        Raises:
            Unsigned, NotAuthenticated: nobody, or nobody known, asks.
            BadSignature, NotGranted, Forbidden: what is asked is not open to who asks.
            NoContainer: there is no such container.
        """
        permission = path_permissions.of(request.method, request.url.path)
        if "sig" not in request.query_params:
            # Who it is comes before whether a container is there.
            self._person(request, Permission.SELF, "", "")
            return self._reached(request, permission, name, path, "")
        signature = signatures.read(self.key, request.query_params, name, path, self.clock.now())
        if not signature.covers(path):
            raise NotGranted("the signature of this address opens another folder or blob")
        try:
            container = self._reached(request, permission, name, path, signature.token_hash)
        except NotAuthenticated as error:
            raise BadSignature(
                f"the token with which this address was got is no longer good: {error.message}",
                error.hint,
            ) from error
        # After the person's rights, of which there is more to say.
        if not set(letters) & set(signature.permissions):
            raise NotGranted(
                f"the signature of this address allows `{signature.permissions}`, and "
                f"{request.method} needs `{letters[0]}`",
                "ask for an address that allows it",
            )
        return container

    def _reached(
        self, request: Request, permission: Permission, name: str, path: str, token_hash: str
    ) -> Container:
        workspace = self.containers.workspace_of(name)
        try:
            self._person(request, permission, workspace, token_hash)
        except NotFound as error:
            raise self.containers.gone(name) from error
        container = self.containers.get(name)
        store = container.datastore.name
        if permission not in (Permission.UPLOAD, Permission.WRITE):
            return container
        places.refuse_fixed(store, path)
        job = places.job_of(store, path)
        if job:
            of_job = Permission.LOG if permission is Permission.UPLOAD else Permission.JOB
            self._person(request, of_job, workspace, token_hash, job)
        return container

    def _person(
        self,
        request: Request,
        permission: Permission,
        workspace: str,
        token_hash: str,
        job: str = "",
    ) -> None:
        kind = request.headers.get("authorization", "").partition(" ")[0].lower()
        if not token_hash and kind != "bearer":
            raise Unsigned(
                "the request carries neither a signature nor a token"
                if kind != "sharedkey"
                else "the request is signed with an account key, and there are none here",
                "use the address, or the credential, that the workspace gave",
            )
        self.granted(request, permission, workspace, token_hash, job)
