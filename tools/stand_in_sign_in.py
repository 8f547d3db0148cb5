"""Microsoft's sign-in site as far as notebooks need it, for stand_in_proxy.py.

Owns: what `login.microsoftonline.com` answers a client that has an id and a secret.
Leaves: tokens to the torchyard server, who gives one for the secret of `yard client-env`.
Always: only the OAuth grant of client credentials is answered, and any id and secret are taken.
"""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

HOST = "login.microsoftonline.com"
_TOKEN_PATHS = ("/oauth2/token", "/oauth2/v2.0/token")
_SCOPE_END = "/.default"


@dataclass(frozen=True)
class SignIn:
    """Where tokens come from: what `yard client-env` prints."""

    redirection: Mapping[str, str]

    def get(self, path: str) -> dict[str, Any] | None:
        """The documents by which a client finds the token's address; None for other paths."""
        parts = urlsplit(path)
        site = f"https://{HOST}/{parts.path.strip('/').partition('/')[0]}"
        if parts.path.endswith("/discovery/instance"):
            names = [HOST, "login.windows.net"]
            metadata = {"preferred_network": HOST, "preferred_cache": HOST, "aliases": names}
            discovered = f"https://{HOST}/common/v2.0/.well-known/openid-configuration"
            return {"tenant_discovery_endpoint": discovered, "metadata": [metadata]}
        if parts.path.endswith("/.well-known/openid-configuration"):
            return {
                "issuer": f"{site}/v2.0",
                "authorization_endpoint": f"{site}/oauth2/v2.0/authorize",
                "token_endpoint": f"{site}/oauth2/v2.0/token",
            }
        return None

    def post(self, path: str, body: bytes) -> dict[str, Any] | None:
        """A token of the server; None for other paths and other grants."""
        form = {name: texts[0] for name, texts in parse_qs(body.decode()).items()}
        if not urlsplit(path).path.endswith(_TOKEN_PATHS):
            return None
        if form.get("grant_type") != "client_credentials" or not form.get("client_secret"):
            return None
        resource = form.get("resource") or form.get("scope", "").removesuffix(_SCOPE_END)
        url = f"{self.redirection['IDENTITY_ENDPOINT']}?resource={quote(resource, safe='')}"
        request = urllib.request.Request(
            url, headers={"X-IDENTITY-HEADER": self.redirection["IDENTITY_HEADER"]}
        )
        trusted = ssl.create_default_context(cafile=self.redirection["SSL_CERT_FILE"])
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted))
        with urllib.request.build_opener(*handlers).open(request) as response:
            token: dict[str, Any] = json.load(response)
        return {**token, "expires_in": int(token["expires_in"])}
