"""ID tokens that a provider, or somebody between, may send; and answers that make no sense."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from torchyard.base.errors import InvalidInput, NotAuthenticated, Unreachable
from torchyard.sign_in import settings
from torchyard.sign_in.provider import Provider
from torchyard.sign_in.settings import OidcSettings

CLIENT, NONCE = "torchyard", "n" * 32
_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
_OTHER_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
_EC_KEY = ec.generate_private_key(ec.SECP256R1())


class _Handler(BaseHTTPRequestHandler):
    server: FakeProvider

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        status, body = self.server.pages.get(self.path, (404, b"{}"))
        self.send_response(status)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class FakeProvider(ThreadingHTTPServer):
    """Answers with `pages`, right or wrong."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.issuer = f"http://127.0.0.1:{self.server_port}"
        self.pages: dict[str, tuple[int, bytes]] = {}
        self.asked: list[str] = []
        self.put("/.well-known/openid-configuration", self.metadata())
        self.put("/jwks", {"keys": [_public(_KEY, "k1"), _public_ec("e1")]})

    def metadata(self, **changes: Any) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            **changes,
        }

    def put(self, path: str, document: Any, status: int = 200) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.pages[path] = (status, body)


def _public(key: rsa.RSAPrivateKey, kid: str, **changes: Any) -> dict[str, Any]:
    document = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
    return {**document, "kid": kid, "use": "sig", **changes}


def _public_ec(kid: str) -> dict[str, Any]:
    document = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(_EC_KEY.public_key()))
    return {**document, "kid": kid, "use": "sig"}


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    server = FakeProvider()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


class Moments:
    s = 0.0

    def __call__(self) -> float:
        return self.s


def _provider(fake: FakeProvider, now_s: Moments | None = None) -> Provider:
    made = OidcSettings(fake.issuer, CLIENT, "https://gpu-box:8766")
    return Provider(made, now_s or Moments())


def _claims(fake: FakeProvider, **changes: Any) -> dict[str, Any]:
    now = int(time.time())
    claims = {
        "iss": fake.issuer, "aud": CLIENT, "sub": "s-1", "nonce": NONCE, "iat": now,
        "exp": now + 300, "preferred_username": "anna", **changes,
    }  # fmt: skip
    return {key: value for key, value in claims.items() if value is not None}


def _token(fake: FakeProvider, **changes: Any) -> str:
    return jwt.encode(_claims(fake, **changes), _KEY, "RS256", {"kid": "k1"})


def test_a_good_token_is_taken(fake: FakeProvider) -> None:
    provider = _provider(fake)
    assert provider.claims(_token(fake), NONCE)["sub"] == "s-1"
    with_ec = jwt.encode(_claims(fake), _EC_KEY, "ES256", {"kid": "e1"})
    assert provider.claims(with_ec, NONCE)["sub"] == "s-1"
    several = _token(fake, aud=[CLIENT, "other"], azp=CLIENT)
    assert provider.claims(several, NONCE)["sub"] == "s-1"


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://elsewhere.example"}, {"iss": None}, {"aud": "other"}, {"aud": None},
        {"aud": [CLIENT, "other"]}, {"aud": [CLIENT, "other"], "azp": "other"}, {"azp": "other"},
        {"nonce": "m" * 32}, {"nonce": None}, {"nonce": 5}, {"exp": 1_000_000}, {"exp": None},
        {"exp": "never"}, {"iat": None}, {"nbf": 4_000_000_000}, {"sub": None},
    ],
)  # fmt: skip
def test_a_token_with_a_wrong_claim_is_refused(fake: FakeProvider, changes: Any) -> None:
    with pytest.raises(NotAuthenticated, match="the provider did not sign you in"):
        _provider(fake).claims(_token(fake, **changes), NONCE)


def _unsigned(fake: FakeProvider) -> str:
    return jwt.encode(_claims(fake), "", "none", {"kid": "k1"})


def _signed_with_the_public_key(fake: FakeProvider) -> str:
    """The confusion of algorithms: the published key as a shared secret."""
    import base64
    import hashlib
    import hmac

    public = _KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
        for part in ({"alg": "HS256", "kid": "k1", "typ": "JWT"}, _claims(fake))
    ]
    digest = hmac.digest(public, b".".join(parts), hashlib.sha256)
    return b".".join([*parts, base64.urlsafe_b64encode(digest).rstrip(b"=")]).decode()


def _signed_by_another(fake: FakeProvider) -> str:
    return jwt.encode(_claims(fake), _OTHER_KEY, "RS256", {"kid": "k1"})


def _with_its_own_key(fake: FakeProvider) -> str:
    head = {"jwk": _public(_OTHER_KEY, "own"), "jku": f"{fake.issuer}/own-keys", "kid": "own"}
    return jwt.encode(_claims(fake), _OTHER_KEY, "RS256", head)


def _without_a_key_name(fake: FakeProvider) -> str:
    return jwt.encode(_claims(fake), _OTHER_KEY, "RS256")


def _of_another_kind(fake: FakeProvider) -> str:
    return jwt.encode(_claims(fake), _EC_KEY, "ES256", {"kid": "k1"})


@pytest.mark.parametrize(
    "make",
    [
        _unsigned, _signed_with_the_public_key, _signed_by_another, _with_its_own_key,
        _without_a_key_name, _of_another_kind,
        lambda fake: _token(fake)[:-4] + "AAAA", lambda fake: "x.y.z", lambda fake: "",
        lambda fake: _token(fake, padding="x" * 70_000),
    ],
)  # fmt: skip
def test_a_forged_token_is_refused(fake: FakeProvider, make: Any) -> None:
    with pytest.raises(NotAuthenticated, match="the provider did not sign you in"):
        _provider(fake).claims(make(fake), NONCE)
    assert "/own-keys" not in fake.asked


@pytest.mark.parametrize("changes", [{"use": "enc"}, {"alg": "RS512"}, {"kty": "oct", "k": "YQ"}])
def test_a_key_of_another_use_counts_for_nothing(fake: FakeProvider, changes: Any) -> None:
    fake.put("/jwks", {"keys": [_public(_KEY, "k1", **changes)]})
    with pytest.raises(NotAuthenticated, match="a key that it does not publish"):
        _provider(fake).claims(_token(fake), NONCE)


def test_keys_are_read_again_when_they_were_rotated_and_not_for_every_forgery(
    fake: FakeProvider,
) -> None:
    moments = Moments()
    provider = _provider(fake, moments)
    provider.claims(_token(fake), NONCE)
    fake.put("/jwks", {"keys": [_public(_OTHER_KEY, "k2")]})
    new = jwt.encode(_claims(fake), _OTHER_KEY, "RS256", {"kid": "k2"})
    for _ in range(20):
        with pytest.raises(NotAuthenticated):
            provider.claims(new, NONCE)
    assert fake.asked.count("/jwks") == 1
    moments.s += 11
    assert provider.claims(new, NONCE)["sub"] == "s-1"
    with pytest.raises(NotAuthenticated):
        provider.claims(_token(fake), NONCE)
    assert fake.asked.count("/jwks") == 2


def test_a_withdrawn_key_ends_within_ten_minutes(fake: FakeProvider) -> None:
    moments = Moments()
    provider = _provider(fake, moments)
    provider.claims(_token(fake), NONCE)
    fake.put("/jwks", {"keys": []})
    moments.s += 601
    with pytest.raises(NotAuthenticated, match="does not publish"):
        provider.claims(_token(fake), NONCE)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"[]"), (200, b"not json"), (200, b"{" * 100_000), (200, b'"' + b"x" * (2 << 20)),
        (302, b"{}"), (500, b"{}"), (404, b"{}"),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_told(fake: FakeProvider, status: int, body: bytes) -> None:
    fake.put("/jwks", body, status)
    with pytest.raises(Unreachable, match="the provider"):
        _provider(fake).claims(_token(fake), NONCE)
    assert "/elsewhere" not in fake.asked


def test_a_refused_code_is_told(fake: FakeProvider) -> None:
    fake.put("/token", {"error": "invalid_grant"}, 400)
    with pytest.raises(NotAuthenticated, match="it answered `invalid_grant`"):
        _provider(fake).redeem("code", "verifier", NONCE)
    fake.put("/token", {"access_token": "x"})
    with pytest.raises(NotAuthenticated, match="no ID token"):
        _provider(fake).redeem("code", "verifier", NONCE)
    fake.put("/token", {"id_token": _token(fake)})
    assert _provider(fake).redeem("code", "verifier", NONCE)["sub"] == "s-1"


def test_another_issuers_configuration_is_refused(fake: FakeProvider) -> None:
    path = "/.well-known/openid-configuration"
    fake.put(path, fake.metadata(issuer="https://elsewhere.example"))
    with pytest.raises(Unreachable, match="says that it is"):
        _provider(fake).authorization_url("s", "n", "c")
    fake.put(path, fake.metadata(authorization_endpoint="http://login.example/authorize"))
    with pytest.raises(Unreachable, match="with TLS"):
        _provider(fake).authorization_url("s", "n", "c")


def test_a_response_of_another_provider_is_refused(fake: FakeProvider) -> None:
    provider = _provider(fake)
    provider.check_issuer("")
    provider.check_issuer(fake.issuer)
    with pytest.raises(NotAuthenticated, match="another provider's"):
        provider.check_issuer("https://elsewhere.example")
    path = "/.well-known/openid-configuration"
    fake.put(path, fake.metadata(authorization_response_iss_parameter_supported=True))
    with pytest.raises(NotAuthenticated, match="another provider's"):
        _provider(fake).check_issuer("")


GOOD = {"issuer": "https://login.example", "client_id": "torchyard"}


def _read(folder: Path, document: Any) -> OidcSettings:
    file = folder / "oidc.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return settings.read(file, "https://gpu-box.example:8766")


def test_settings_have_good_defaults(tmp_path: Path) -> None:
    made = _read(tmp_path, GOOD)
    assert made.redirect_uri == "https://gpu-box.example:8766/v1/sign-in/callback"
    assert (made.name_claim, made.session.total_seconds()) == ("preferred_username", 86_400)
    assert not made.trusts_names
    assert _read(tmp_path, {**GOOD, "link_by_name": True}).trusts_names
    assert _read(tmp_path, {**GOOD, "name_claim": "email"}).trusts_names
    assert _read(tmp_path, {**GOOD, "scopes": ["email"]}).scopes == ("openid", "email")
    group = {"team": [{"role": "Reader"}, {"role": "owner", "workspace": "vision"}]}
    grants = _read(tmp_path, {**GOOD, "groups": group}).groups["team"]
    assert [(grant.role.value, grant.workspace) for grant in grants] == [
        ("reader", ""), ("owner", "vision")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "is not JSON"),
        ([], "oidc.json"),
        ({**GOOD, "isuer": "x"}, "unknown key `isuer`"),
        ({"issuer": "https://login.example"}, "no `client_id`"),
        ({**GOOD, "issuer": "http://login.example"}, "not an address with TLS"),
        ({**GOOD, "issuer": "ftp://login.example"}, "not an address with TLS"),
        ({**GOOD, "public_url": "http://gpu-box"}, "not an address with TLS"),
        ({**GOOD, "groups": {"team": {"role": "king"}}}, "there is no role `king`"),
        ({**GOOD, "groups": {"team": {}}}, "no `role`"),
        ({**GOOD, "session_hours": 0}, "`session_hours`"),
        ({**GOOD, "session_hours": True}, "`session_hours`"),
        ({**GOOD, "scopes": "openid"}, "`scopes`"),
        ({**GOOD, "link_by_name": "yes"}, "`link_by_name` must be true or false"),
        ({**GOOD, "client_secret_file": "nothing"}, "can't be read"),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, document: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        _read(tmp_path, document)
    assert message in refused.value.message


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    secret.chmod(0o644)
    with pytest.raises(InvalidInput) as refused:
        _read(tmp_path, {**GOOD, "client_secret_file": "secret"})
    assert refused.value.hint == f"run `chmod o= {secret}`"
    secret.chmod(0o640)
    assert _read(tmp_path, {**GOOD, "client_secret_file": "secret"}).secret() == "s3cret"
    assert "s3cret" not in repr(_read(tmp_path, {**GOOD, "client_secret_file": "secret"}))
