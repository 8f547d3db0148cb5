"""Online endpoints of the workspace, over HTTP.

Owns: waiting for a change and a deletion, keys, calling an endpoint.
Leaves: the verbs of every endpoint to verbs.py, deployments to online_deployments.py.
Always: keys and tokens are in no `raw` and no text form.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchyard.base.errors import InvalidInput, NotFound, Timeout
from torchyard.client.endpoints import scoring
from torchyard.client.endpoints.scoring import Answer
from torchyard.client.endpoints.verbs import Endpoints
from torchyard.client.resources import Json, Resource

_EVERY_S = 0.5
_UPDATE_EVERY_S = 0.1
_UPDATE_LIMIT_S = 30.0


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class OnlineEndpoint(Resource):
    """`state` is Creating, Updating, Deleting, Succeeded or Failed. `scoring_uri` is where requests
    go, empty until the router has started; `traffic` is percent by deployment.
    """

    name: str
    state: str
    auth_mode: str
    scoring_uri: str
    openapi_uri: str
    traffic: Mapping[str, int]
    mirror_traffic: Mapping[str, int]
    owner: str

    _shown = ("name", "state", "traffic")


@dataclass(frozen=True)
class Keys:
    primary: str = field(repr=False)
    secondary: str = field(repr=False)


@dataclass(frozen=True)
class Token:
    """`ends_at` as ISO 8601, in UTC."""

    text: str = field(repr=False)
    ends_at: str
    refresh_after: str


class OnlineEndpoints(Endpoints[OnlineEndpoint]):
    """Online endpoints of the workspace; `client.online_endpoints` is one.

    Example::

        client.online_endpoints.create({"name": "digits"})
        client.online_endpoints.invoke("digits", {"data": [[0.0] * 64]})
    """

    kind = "online-endpoints"

    def delete(self, name: str, wait: bool = True, timeout_s: float = 600.0) -> None:
        """Delete an endpoint with its deployments.

        Args:
            wait: return when it is gone.

        Raises:
            Timeout: it is still there.
        """
        self._transport.delete(self._at(name))
        ends_at = time.monotonic() + timeout_s
        while wait:
            try:
                self.get(name)
            except NotFound:
                return
            if time.monotonic() > ends_at:
                raise Timeout(
                    f"endpoint `{name}` is still being deleted",
                    f"see `yard online-endpoint show -n {name}`",
                )
            time.sleep(_EVERY_S)

    def keys(self, name: str) -> Keys:
        """
        Raises:
            Conflict: the endpoint takes tokens.
        """
        return _keys(self._transport.post(f"{self._at(name)}/keys"))

    def regenerate_keys(self, name: str, key_type: str = "primary") -> Keys:
        """Replace one key; requests with the old one are refused from now on."""
        path = f"{self._at(name)}/keys/regenerate"
        return _keys(self._transport.post(path, {"key_type": key_type}))

    def token(self, name: str) -> Token:
        """A token for an endpoint of `auth_mode: aml_token`."""
        raw = self._transport.post(f"{self._at(name)}/token")
        return Token(raw["accessToken"], raw["expiryTimeUtc"], raw["refreshAfterTimeUtc"])

    def credential(self, endpoint: OnlineEndpoint) -> str:
        """What a request to it has as its bearer."""
        if endpoint.auth_mode == "key":
            return self.keys(endpoint.name).primary
        if endpoint.auth_mode == "aml_token":
            return self.token(endpoint.name).text
        return self._transport.token

    def invoke(self, name: str, request: Any, deployment: str = "") -> Answer:
        """Send a request to the endpoint's router, and return what a deployment answered.

        Args:
            request: bytes as they are; anything else as JSON.
            deployment: which one is to answer, whatever the traffic says.

        Raises:
            ScoringFailed: a status of 400 or above was answered.
            InvalidInput: the request can't be written as JSON.
        """
        endpoint = self.get(name)
        if not endpoint.scoring_uri:
            raise InvalidInput(
                f"endpoint `{name}` has no address yet: its router has not started",
                "create a deployment, and try again when it has",
                code="router_missing",
            )
        try:
            body = request if isinstance(request, bytes) else json.dumps(request).encode()
        except (TypeError, ValueError) as error:
            raise InvalidInput(
                f"the request can't be written as JSON: {error}",
                "turn arrays into lists (`array.tolist()`), or give bytes",
            ) from error
        return scoring.score(
            endpoint.scoring_uri,
            self.credential(endpoint),
            body,
            deployment,
            self._transport.ca_cert,
        )

    def _changed(self, endpoint: OnlineEndpoint) -> OnlineEndpoint:
        """As it is once its router works by it; still Updating if the router does not run."""
        ends_at = time.monotonic() + _UPDATE_LIMIT_S
        while endpoint.state == "Updating" and time.monotonic() < ends_at:
            time.sleep(_UPDATE_EVERY_S)
            endpoint = self.get(endpoint.name)
        return endpoint

    def _endpoint(self, raw: Json) -> OnlineEndpoint:
        return OnlineEndpoint(
            raw=raw,
            name=raw["name"],
            state=raw["provisioning_state"],
            auth_mode=raw["auth_mode"],
            scoring_uri=raw["scoring_uri"],
            openapi_uri=raw["openapi_uri"],
            traffic=raw["traffic"],
            mirror_traffic=raw["mirror_traffic"],
            owner=raw["owner"],
        )


def _keys(raw: Json) -> Keys:
    return Keys(raw["primaryKey"], raw["secondaryKey"])
