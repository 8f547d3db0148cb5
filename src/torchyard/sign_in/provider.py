"""The OpenID Connect provider: its endpoints, its keys, and what its ID tokens say.

Owns: requests to the provider, checking an ID token.
Leaves: the browser's way to routes.py, what a person may do to admission.py.
Always: a token counts only with a signature of a key that the provider publishes now, for this
issuer, client and nonce, and before its end; a symmetric algorithm or none never does; answers are
bounded in size and time, and no redirect is followed.

Source: https://openid.net/specs/openid-connect-core-1_0.html (3.1.3.7 says what to check),
https://www.rfc-editor.org/rfc/rfc7636 (PKCE), https://www.rfc-editor.org/rfc/rfc8725 (algorithms),
https://www.rfc-editor.org/rfc/rfc9207 (the issuer in the response)
"""

from __future__ import annotations

import base64
import hmac
import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from torchyard.base.errors import InvalidInput, NotAuthenticated, TorchyardError, Unreachable
from torchyard.sign_in.settings import OidcSettings, is_safe_url

if TYPE_CHECKING:
    import jwt

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
_LIMIT_S = 10.0
_ANSWER_MOST_BYTES = 1 << 20
_TOKEN_MOST_BYTES = 64 << 10
_KEPT_S = 600.0
_KEYS_AGAIN_AFTER_S = 10.0
_LEEWAY_S = 60
_MOST_AT_ONCE = 8
_CONFIGURATION = "/.well-known/openid-configuration"


class Busy(TorchyardError):
    """Too many sign-ins wait for the provider."""

    code = "sign_in_busy"
    http_status = 503


class Provider:
    """For any thread; what it publishes is kept for ten minutes.

    Raises:
        InvalidInput: the library that checks tokens is not installed.
    """

    def __init__(self, settings: OidcSettings, now_s: Callable[[], float] = time.monotonic) -> None:
        try:
            import jwt  # noqa: F401
        except ImportError as error:
            raise InvalidInput(
                "sign-in needs the package `pyjwt`, which is not installed",
                "install it with `pip install 'torchyard[oidc]'`",
            ) from error
        self.settings = settings
        self._now_s = now_s
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(_MOST_AT_ONCE)
        self._metadata: tuple[float, Mapping[str, Any]] | None = None
        self._keys: tuple[float, Mapping[str, Any]] | None = None

    def authorization_url(self, state: str, nonce: str, verifier_hash: str) -> str:
        """Where the browser goes.

        Args:
            verifier_hash: the PKCE challenge of method S256.
        """
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self.settings.redirect_uri,
            "scope": " ".join(self.settings.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": verifier_hash,
            "code_challenge_method": "S256",
        }
        endpoint = self._endpoint("authorization_endpoint")
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    def redeem(self, code: str, verifier: str, nonce: str) -> Mapping[str, Any]:
        """The claims of the ID token that the provider gives for a code.

        Raises:
            NotAuthenticated: the provider refuses the code, or its token is not good.
            Unreachable: it does not answer.
        """
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.settings.redirect_uri,
            "client_id": self.settings.client_id,
            "code_verifier": verifier,
        }
        headers = self._credentials(form)
        answer = self._ask(self._endpoint("token_endpoint"), urlencode(form).encode(), headers)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise _refused("its answer has no ID token; the client needs the scope `openid`")
        return self.claims(token, nonce)

    def check_issuer(self, issuer: str) -> None:
        """Check the issuer that a response names.

        Raises:
            NotAuthenticated: another provider sent the browser back.
        """
        promised = self._read_metadata().get("authorization_response_iss_parameter_supported")
        if (issuer and issuer != self.settings.issuer) or (promised is True and not issuer):
            raise _refused("the response is another provider's")

    def claims(self, token: str, nonce: str) -> Mapping[str, Any]:
        """The claims of an ID token.

        Raises:
            NotAuthenticated: anything about it is wrong.
        """
        import jwt

        if len(token) > _TOKEN_MOST_BYTES:
            raise _refused("its ID token is too long")
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in ALGORITHMS:
                raise _refused(f"its ID token is signed with `{str(header.get('alg'))[:20]}`")
            claims: Mapping[str, Any] = jwt.decode(
                token,
                self._key_for(header),
                algorithms=[header["alg"]],
                audience=self.settings.client_id,
                issuer=self.settings.issuer,
                leeway=_LEEWAY_S,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError as error:
            raise _refused(f"its ID token is not valid: {error}") from error
        sent = claims.get("nonce")
        if not isinstance(sent, str) or not hmac.compare_digest(sent.encode(), nonce.encode()):
            raise _refused("its ID token is for another sign-in")
        self._check_party(claims)
        return claims

    def _check_party(self, claims: Mapping[str, Any]) -> None:
        audience, party = claims["aud"], claims.get("azp")
        several = isinstance(audience, list) and len(audience) > 1
        if (several or party is not None) and party != self.settings.client_id:
            raise _refused("its ID token is for another client")

    def _key_for(self, header: Mapping[str, Any]) -> jwt.PyJWK:
        key = self._published_key(header, self._read_keys())
        if key is None:
            key = self._published_key(header, self._read_keys(is_unknown=True))
        if key is None:
            raise _refused("its ID token is signed with a key that it does not publish")
        return key

    def _published_key(
        self, header: Mapping[str, Any], keys: Mapping[str, Any]
    ) -> jwt.PyJWK | None:
        import jwt

        fitting = []
        for document in keys.get("keys", []):
            if not isinstance(document, dict) or document.get("use", "sig") != "sig":
                continue
            if document.get("kty") not in ("RSA", "EC", "OKP"):
                continue
            if document.get("alg", header["alg"]) != header["alg"]:
                continue
            if "kid" in header and document.get("kid") != header["kid"]:
                continue
            fitting.append(document)
        # Without a name there must be no choice.
        if len(fitting) != 1:
            return None
        return jwt.PyJWK.from_dict(fitting[0], algorithm=header["alg"])

    def _credentials(self, form: dict[str, str]) -> dict[str, str]:
        """Headers that prove the client, or fields of the form where the provider wants those."""
        secret = self.settings.secret()
        if not secret:
            return {}
        ways = self._read_metadata().get("token_endpoint_auth_methods_supported")
        if isinstance(ways, list) and "client_secret_basic" not in ways:
            form["client_secret"] = secret
            return {}
        # RFC 6749, 2.3.1: both are encoded as in a form.
        pair = f"{quote(self.settings.client_id, safe='')}:{quote(secret, safe='')}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    def _endpoint(self, name: str) -> str:
        url = self._read_metadata().get(name)
        if not isinstance(url, str) or not is_safe_url(url):
            raise Unreachable(
                f"the provider `{self.settings.issuer}` has no `{name}` with TLS",
                "check `issuer` in the settings of the sign-in",
            )
        return url

    def _read_metadata(self) -> Mapping[str, Any]:
        with self._lock:
            cached = self._metadata
        if cached is not None and self._now_s() - cached[0] < _KEPT_S:
            return cached[1]
        metadata = self._ask(self.settings.issuer.rstrip("/") + _CONFIGURATION)
        if metadata.get("issuer") != self.settings.issuer:
            raise Unreachable(
                f"`{self.settings.issuer}` says that it is `{str(metadata.get('issuer'))[:200]}`",
                "write that into `issuer`, letter by letter, if it is the provider you mean",
            )
        with self._lock:
            self._metadata = (self._now_s(), metadata)
        return metadata

    def _read_keys(self, is_unknown: bool = False) -> Mapping[str, Any]:
        """
        Args:
            is_unknown: a key is wanted that was not among them, as after their rotation.
        """
        with self._lock:
            cached = self._keys
        age_s = self._now_s() - cached[0] if cached is not None else 0.0
        if cached is not None and age_s < (_KEYS_AGAIN_AFTER_S if is_unknown else _KEPT_S):
            return cached[1]
        keys = self._ask(self._endpoint("jwks_uri"))
        with self._lock:
            self._keys = (self._now_s(), keys)
        return keys

    def _ask(
        self, url: str, form: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        """The JSON object at a URL."""
        request = urllib.request.Request(
            url, form, {"Accept": "application/json", **(headers or {})}
        )
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if url.startswith("https://"):
            context = ssl.create_default_context(cafile=self.settings.ca_cert or None)
            handlers.append(urllib.request.HTTPSHandler(context=context))
        opener = urllib.request.build_opener(*handlers)
        with self._reserve_slot(), _translated(self.settings.issuer):
            with opener.open(request, timeout=_LIMIT_S) as response:
                content = response.read(_ANSWER_MOST_BYTES + 1)
            document = json.loads(content) if len(content) <= _ANSWER_MOST_BYTES else None
            if not isinstance(document, dict):
                raise ValueError("not a JSON object")
            return document

    @contextmanager
    def _reserve_slot(self) -> Iterator[None]:
        """Anybody may begin to sign in: they must not keep all of the server's threads waiting."""
        if not self._slots.acquire(timeout=1.0):
            raise Busy("too many people are signing in", "try again in a moment")
        try:
            yield
        finally:
            self._slots.release()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any, **more: Any) -> None:
        return None


@contextmanager
def _translated(issuer: str) -> Iterator[None]:
    try:
        yield
    except urllib.error.HTTPError as error:
        if error.code == 400 or error.code == 401:
            raise _refused(_error_of(error)) from error
        raise Unreachable(
            f"the provider `{issuer}` answered {error.code}", "try again, or ask its administrator"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "reason", error)
        raise Unreachable(
            f"the provider `{issuer}` can't be asked: {str(reason)[:200]}",
            "check `issuer` and `ca_cert` in the settings of the sign-in",
        ) from error


def _error_of(error: urllib.error.HTTPError) -> str:
    try:
        document = json.loads(error.read(_ANSWER_MOST_BYTES))
        code = str(document["error"])[:100]
    except (OSError, ValueError, KeyError, TypeError):
        code = str(error.code)
    return f"it answered `{code}`"


def _refused(reason: str) -> NotAuthenticated:
    return NotAuthenticated(
        f"the provider did not sign you in: {reason}",
        "sign in again with `yard login`",
        code="sign_in_refused",
    )
