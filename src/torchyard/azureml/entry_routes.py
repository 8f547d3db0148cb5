"""How Azure's clients find this server and get their tokens from it.

Owns: the cloud's metadata, discovery, the managed-identity endpoint, what `yard client-env` asks.
Leaves: the listener with TLS to listening.py, signing to workspaces/jwts.py.
Always: metadata and discovery are asked for several times by every process, without a token, and
cost no query; the secret of a managed identity is a person's or a job's token, nothing else.

Source: https://learn.microsoft.com/azure/app-service/overview-managed-identity (REST endpoint),
https://management.azure.com/metadata/endpoints?api-version=2022-09-01 (its shape)
"""

from collections.abc import Callable
from typing import Annotated, Any, Protocol
from urllib.parse import parse_qs, urlsplit

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from torchyard.azureml.common import containers, errors
from torchyard.azureml.common.calls import Authenticate, base_url
from torchyard.base.clock import Clock
from torchyard.base.errors import Conflict, InvalidInput, NotAuthenticated, TorchyardError
from torchyard.worker.relay import sdk_v1_addresses
from torchyard.workspaces import jwts
from torchyard.workspaces.jwts import Signer
from torchyard.workspaces.path_permissions import PathGuardedRoute
from torchyard.workspaces.types import Identity

CLOUD = "Torchyard"
_DOMAIN = "azure.torchyard"
_ANEW = "`yard client-env` prints a good one on the server's machine, elsewhere after `yard login`"


class Way(Protocol):
    """See listening.py."""

    @property
    def port(self) -> int: ...

    @property
    def host(self) -> str: ...

    @property
    def authority(self) -> str: ...


OpenTls = Callable[[str], Way]
"""From what a client calls the server by (empty when it has TLS already) to its way in by TLS."""

PATHS = ("/metadata", "/discovery", "/registrymanagement", "/msi", "/v1/client-env")
"""What the routes here are below."""


def router(
    clock: Clock,
    signer: Signer,
    authenticate: Authenticate,
    holder: Callable[[Request, str], Identity],
    open_tls: OpenTls | None = None,
    storage_domain: str = "",
) -> APIRouter:
    """
    Args:
        authenticate: from a request to who asks.
        holder: from a request and a token that it gives as a secret to whose it is.
        open_tls: None when there can be no listener with TLS.
        storage_domain: storage accounts are host names below it, `ACCOUNT.blob.DOMAIN`; empty
            for the form that needs no DNS.
    """
    routes = APIRouter(route_class=PathGuardedRoute, include_in_schema=False)
    person = Annotated[Identity, Depends(authenticate)]

    @routes.get("/metadata/endpoints")
    async def metadata(request: Request) -> list[dict[str, Any]]:
        base = base_url(request)
        here = cloud(base, signer.tenant, containers.suffix(base, storage_domain))
        if not request.headers.get("user-agent", "").startswith("Python-urllib"):
            return [here]
        # SDK v1 alone reads this through urllib. Inside jobs it asks for Azure's own cloud by name,
        # and would look for it in the internet; SDK v2 1.12 stumbles over the name.
        return [here, {**here, "name": "AzureCloud"}]

    @routes.get("/discovery")
    async def discovery(request: Request) -> dict[str, Any]:
        return sdk_v1_addresses.services(base_url(request))

    @routes.get("/registrymanagement/{path:path}")
    async def registries(path: str) -> JSONResponse:
        hint = "what a registry would share is registered in each workspace"
        return errors.answer(errors.NotServed("torchyard has no registries", hint))

    # SDK v1 writes a slash behind it, and the header's older name.
    @routes.get("/msi/token")
    @routes.get("/msi/token/")
    def of_app_service(request: Request) -> JSONResponse:
        secret = request.headers.get("x-identity-header") or request.headers.get("secret", "")
        return _told(lambda: token(request, secret, request.query_params.get("resource", "")))

    @routes.post("/msi/token")
    async def of_machine(request: Request) -> JSONResponse:
        form = parse_qs((await request.body()).decode("utf-8", "replace"))
        secret = request.headers.get("secret") or request.headers.get("x-identity-header", "")
        resource = form.get("resource", [request.query_params.get("resource", "")])[0]
        return await run_in_threadpool(_told, lambda: token(request, secret, resource))

    def token(request: Request, secret: str, resource: str) -> dict[str, str]:
        if not secret:
            raise NotAuthenticated(
                "the request for a token carries no secret", "set what `yard client-env` prints"
            )
        if not resource.strip():
            raise InvalidInput("the request does not say for which `resource` the token is")
        try:
            identity, now = holder(request, secret), clock.now()
        except NotAuthenticated as error:
            raise NotAuthenticated(error.message, _ANEW, code=error.code) from error
        ends_at = now + jwts.LIFETIME
        if identity.expires_at is not None:
            ends_at = min(ends_at, identity.expires_at)
        signed = signer.sign(secret, identity.user, resource, now, ends_at)
        return {
            "access_token": signed,
            "expires_on": str(int(ends_at.timestamp())),
            "expires_in": str(int((ends_at - now).total_seconds())),
            "not_before": str(int(now.timestamp())),
            "resource": resource,
            "token_type": "Bearer",
        }

    @routes.post("/v1/client-env")
    def client_env(request: Request, identity: person) -> dict[str, Any]:
        base, way = base_url(request), None
        if open_tls is not None:
            asked = urlsplit(base)
            way = open_tls("" if asked.scheme == "https" else asked.hostname or "")
            if asked.scheme != "https":
                base = f"https://{_literal(way.host or asked.hostname or '')}:{way.port}"
        if not base.startswith("https://"):
            raise Conflict(
                "this server listens without TLS, and Azure's clients insist on it",
                "start it with `yard server start`, or `yard-server --tls-cert --tls-key`",
            )
        return {
            "url": base,
            "ca_cert": way.authority if way is not None else "",
            "variables": variables(base),
        }

    return routes


def variables(base: str) -> dict[str, str]:
    """What redirects Azure's clients to the server at `base`, but for secrets and certificates."""
    return {
        "ARM_CLOUD_METADATA_URL": f"{base}/metadata/endpoints?api-version=2022-09-01",
        "AZUREML_CURRENT_CLOUD": CLOUD,
        "IDENTITY_ENDPOINT": f"{base}/msi/token",
        "MSI_ENDPOINT": f"{base}/msi/token",
        # Else SDK v2 asks for registries at a name that nobody has.
        "REGISTRY_DISCOVERY_ENDPOINT_URL": f"{base}/",
        # Without it SDK v1 asks there without the secret.
        "APPSETTING_WEBSITE_SITE_NAME": "torchyard",
    }


def cloud(base: str, tenant: str, storage: str) -> dict[str, Any]:
    """The metadata of the one cloud that there is here."""
    return {
        "name": CLOUD,
        # The audience of Azure ML's own tokens is `https://ml.` and what follows `portal.`.
        "portal": f"https://portal.{_DOMAIN}/",
        "resourceManager": f"{base}/",
        "authentication": {
            "loginEndpoint": f"{base}/",
            "audiences": [f"{base}/", base],
            "tenant": tenant,
            "identityProvider": "AAD",
        },
        "suffixes": {
            "storage": storage,
            "keyVaultDns": f"vault.{_DOMAIN}",
            "acrLoginServer": f"azurecr.{_DOMAIN}",
            "sqlServerHostname": f"database.{_DOMAIN}",
            "mhsmDns": f"managedhsm.{_DOMAIN}",
            "mysqlServerEndpoint": f"mysql.database.{_DOMAIN}",
            "postgresqlServerEndpoint": f"postgres.database.{_DOMAIN}",
            "mariadbServerEndpoint": f"mariadb.database.{_DOMAIN}",
            "azureDataLakeStoreFileSystem": f"datalake.{_DOMAIN}",
            "azureDataLakeAnalyticsCatalogAndJob": f"analytics.{_DOMAIN}",
            "attestationEndpoint": f"attest.{_DOMAIN}",
            "synapseAnalytics": f"synapse.{_DOMAIN}",
        },
        "graph": f"{base}/",
        "graphAudience": f"{base}/",
        "gallery": f"{base}/",
        "media": f"{base}/",
        "batch": f"{base}/",
        "sqlManagement": f"{base}/",
        "vmImageAliasDoc": f"{base}/",
        "activeDirectoryDataLake": f"{base}/",
    }


def _literal(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _told(ask: Callable[[], dict[str, str]]) -> JSONResponse:
    """The answer, or a refusal with the words that each kind of client looks for."""
    try:
        return JSONResponse(ask(), headers={"cache-control": "no-store"})
    except TorchyardError as error:
        said = f"{error.message}. Hint: {error.hint}" if error.hint else error.message
        status = error.http_status
        body = {
            "statusCode": status,
            "message": said,
            "error": "invalid_client" if status == 401 else "invalid_request",
            "error_description": said,
        }
        return JSONResponse(body, status)
