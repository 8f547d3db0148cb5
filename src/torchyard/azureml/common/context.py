"""What the routes of Azure ML's APIs work on.

Owns: the objects that live as long as the server and are handed to routes by `Depends`.
Leaves: making their parts to app/application.py, what each of them does to its own package.
Always: nothing is opened or written before the first request needs it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import Depends, Request

from torchyard.assets.sources import FindSource
from torchyard.base.home import signing
from torchyard.environments.requested_builds import RequestedBuilds
from torchyard.jobs.files import model_sources
from torchyard.jobs.services import Services
from torchyard.workspaces.access import Access
from torchyard.workspaces.jwts import Signer

_T = TypeVar("_T")


class TlsEndpoint(Protocol):
    """Where clients that insist on TLS reach the server; see `Way` in app/listeners.py."""

    @property
    def port(self) -> int: ...

    @property
    def host(self) -> str: ...

    @property
    def authority(self) -> str: ...


OpenTls = Callable[[str], TlsEndpoint]
"""From the name that a client calls the server by (empty when it uses TLS already) to the TLS
endpoint, which is opened if necessary."""


@dataclass(frozen=True)
class AzureContext:
    """
    Attributes:
        builds: of environments that are requested outside of jobs.
        open_tls: None when there can be no listener with TLS.
        storage_domain: storage accounts are host names below it, `ACCOUNT.blob.DOMAIN`; empty
            for the form that needs no DNS.
    """

    services: Services
    access: Access
    signer: Signer
    builds: RequestedBuilds
    open_tls: OpenTls | None = None
    storage_domain: str = ""
    _shared: dict[type, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def find_model(self) -> FindSource:
        """The files that a model's path names."""
        return partial(model_sources.find, self.services)

    @cached_property
    def signing_key(self) -> bytes:
        """What signed addresses of blobs are made with."""
        return signing.key(self.services.home, "addresses of blobs")

    def shared(self, kind: type[_T], make: Callable[[], _T]) -> _T:
        """The one object of a kind that all requests share; made when it is first needed."""
        with self._lock:
            if kind not in self._shared:
                self._shared[kind] = make()
            instance: _T = self._shared[kind]
            return instance


_LOCK = threading.Lock()


def context_of(request: Request) -> AzureContext:
    state = request.app.state
    with _LOCK:
        if not hasattr(state, "azure"):
            state.azure = AzureContext(
                state.services,
                state.access,
                state.signer,
                state.builds,
                state.open_tls,
                state.storage_domain,
            )
        context: AzureContext = state.azure
        return context


# A coroutine: FastAPI would run a plain function in a thread of its own.
async def _context(request: Request) -> AzureContext:
    return context_of(request)


Context = Annotated[AzureContext, Depends(_context)]
