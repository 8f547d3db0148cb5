"""How Azure's clients find this server and get their tokens from it.

Owns: the cloud's metadata, discovery, the managed-identity endpoint, the response to
`yard client-env`, the way from the link that clients print to the job's page.
Leaves: the listener with TLS to app/listeners.py, signing to workspaces/jwts.py.
Always: every process requests metadata and discovery several times, without a token, and they cost
no query; the secret of a managed identity is a person's or a job's token, nothing else; the link
to a job's page needs no token, and leads to the page whether there is such a job or not.

Source: https://learn.microsoft.com/azure/app-service/overview-managed-identity (REST endpoint),
https://management.azure.com/metadata/endpoints?api-version=2022-09-01 (its shape)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from fastapi import Request
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from torchyard.azureml.common import containers, errors
from torchyard.azureml.common.calls import base_url
from torchyard.azureml.common.context import AzureContext, Context
from torchyard.azureml.common.routing import RouteTable
from torchyard.base.bodies import request_bodies
from torchyard.base.errors import Conflict, InvalidInput, NotAuthenticated, TorchyardError
from torchyard.base.settings import DEFAULT_WORKSPACE
from torchyard.jobs.spec.parts import NAME
from torchyard.worker.relay import sdk_v1_addresses
from torchyard.workspaces import jwts
from torchyard.workspaces.guarded_routes import UNLIMITED, GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Identity

CLOUD = "Torchyard"
_DOMAIN = "azure.torchyard"
_NEW_TOKEN = (
    "`yard client-env` prints a valid one on the server's machine, elsewhere after `yard login`"
)

routes = RouteTable(route_class=GuardedRoute)


@routes.get("/metadata/endpoints")
@needs(Permission.OPEN)
async def get_metadata(request: Request, context: Context) -> list[dict[str, Any]]:
    base = base_url(request)
    server = cloud(base, context.signer.tenant, containers.suffix(base, context.storage_domain))
    if not request.headers.get("user-agent", "").startswith("Python-urllib"):
        return [server]
    # Only SDK v1 reads this through urllib. Inside jobs it looks for Azure's own cloud by name, and
    # would connect to it on the internet; SDK v2 1.12 fails when it sees that name.
    return [server, {**server, "name": "AzureCloud"}]


@routes.get("/discovery")
@needs(Permission.OPEN)
async def discover(request: Request) -> dict[str, Any]:
    return sdk_v1_addresses.services(base_url(request))


@routes.get("/registrymanagement/{path:path}")
@needs(Permission.OPEN)
async def get_registry(path: str) -> JSONResponse:
    hint = "register what a registry would share in each workspace"
    return errors.error_response(errors.NotServed("torchyard has no registries", hint))


# SDK v1 appends a slash, and sends the older name of the header.
@routes.get("/msi/token", "/msi/token/")
@needs(Permission.OPEN)
def get_app_service_token(request: Request, context: Context) -> JSONResponse:
    secret = request.headers.get("x-identity-header") or request.headers.get("secret", "")
    resource = request.query_params.get("resource", "")
    return _token_response(partial(_token, context, request, secret, resource))


# The secret in the headers is checked before the body is read.
@routes.post("/msi/token")
@needs(Permission.OPEN, body_limit_bytes=UNLIMITED)
async def get_machine_token(request: Request, context: Context) -> JSONResponse:
    secret = request.headers.get("secret") or request.headers.get("x-identity-header", "")
    refusal = await run_in_threadpool(_refusal, partial(_holder, context, request, secret))
    if refusal is not None:
        return refusal
    async with request_bodies.with_body(
        request, request_bodies.STRANGERS_LIMIT_BYTES
    ) as request_body:
        form = parse_qs((await request_body.body()).decode("utf-8", "replace"))
    resource = form.get("resource", [request.query_params.get("resource", "")])[0]
    get_token = partial(_token, context, request, secret, resource)
    return await run_in_threadpool(_token_response, get_token)


@routes.post("/v1/client-env")
@needs(Permission.SELF)
def get_client_environment(request: Request, context: Context, identity: Person) -> dict[str, Any]:
    base, endpoint = base_url(request), None
    if context.open_tls is not None:
        url = urlsplit(base)
        endpoint = context.open_tls("" if url.scheme == "https" else url.hostname or "")
        if url.scheme != "https":
            host = _bracketed(endpoint.host or url.hostname or "")
            base = f"https://{host}:{endpoint.port}"
    if not base.startswith("https://"):
        raise Conflict(
            "this server listens without TLS, which Azure's clients require",
            "start it with `yard server start`, or `yard-server --tls-cert --tls-key`",
        )
    return {
        "url": base,
        "ca_cert": endpoint.authority if endpoint is not None else "",
        "variables": variables(base),
    }


@routes.get("/runs/{name}")
@needs(Permission.OPEN)
def get_job_page(name: str, wsid: str = "") -> Response:
    """The address that Azure's clients print as the job's page in the studio."""
    workspace = wsid.partition("&")[0].rstrip("/").rpartition("/")[2] or DEFAULT_WORKSPACE
    if not NAME.match(name) or not NAME.match(workspace):
        return PlainTextResponse("there is no such job\n", 404)
    return RedirectResponse(f"/ui/workspaces/{quote(workspace)}/jobs/{quote(name)}", 302)


def variables(base: str) -> dict[str, str]:
    """What redirects Azure's clients to the server at `base`, except secrets and certificates."""
    return {
        "ARM_CLOUD_METADATA_URL": f"{base}/metadata/endpoints?api-version=2022-09-01",
        "AZUREML_CURRENT_CLOUD": CLOUD,
        "IDENTITY_ENDPOINT": f"{base}/msi/token",
        "MSI_ENDPOINT": f"{base}/msi/token",
        # Otherwise SDK v2 requests registries from a host that does not exist.
        "REGISTRY_DISCOVERY_ENDPOINT_URL": f"{base}/",
        # Without it SDK v1 requests tokens without the secret.
        "APPSETTING_WEBSITE_SITE_NAME": "torchyard",
    }


def _holder(context: AzureContext, request: Request, secret: str) -> Identity:
    if not secret:
        raise NotAuthenticated(
            "the request for a token has no secret", "set what `yard client-env` prints"
        )
    try:
        return context.access.holder(request, secret)
    except NotAuthenticated as error:
        raise NotAuthenticated(error.message, _NEW_TOKEN, code=error.code) from error


def _token(context: AzureContext, request: Request, secret: str, resource: str) -> dict[str, str]:
    identity = _holder(context, request, secret)
    if not resource.strip():
        raise InvalidInput("the request does not name the `resource` that the token is for")
    now = context.services.clock.now()
    ends_at = now + jwts.LIFETIME
    if identity.expires_at is not None:
        ends_at = min(ends_at, identity.expires_at)
    return {
        "access_token": context.signer.sign(secret, identity.user, resource, now, ends_at),
        "expires_on": str(int(ends_at.timestamp())),
        "expires_in": str(int((ends_at - now).total_seconds())),
        "not_before": str(int(now.timestamp())),
        "resource": resource,
        "token_type": "Bearer",
    }


def _token_response(get_token: Callable[[], dict[str, str]]) -> JSONResponse:
    try:
        return JSONResponse(get_token(), headers={"cache-control": "no-store"})
    except TorchyardError as error:
        return _error_response(error)


def _refusal(check: Callable[[], object]) -> JSONResponse | None:
    try:
        check()
    except TorchyardError as error:
        return _error_response(error)
    return None


def _error_response(error: TorchyardError) -> JSONResponse:
    """An error with the keys that each kind of client reads."""
    message = f"{error.message}. Hint: {error.hint}" if error.hint else error.message
    status = error.http_status
    body = {
        "statusCode": status,
        "message": message,
        "error": "invalid_client" if status == 401 else "invalid_request",
        "error_description": message,
    }
    return JSONResponse(body, status)


def cloud(base: str, tenant: str, storage: str) -> dict[str, Any]:
    """The metadata of the only cloud, this server."""
    return {
        "name": CLOUD,
        # The audience of Azure ML's own tokens is `https://ml.` and the part after `portal.`.
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


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


router = routes.router()
