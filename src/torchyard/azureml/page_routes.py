"""The page of a job that Azure's clients print a link to.

Owns: what stands there as long as torchyard has no web page.
Leaves: the link to arm/job_resources.py.
Always: it answers without a token, and so tells nothing but what the address said.
"""

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from torchyard.jobs.spec.values import NAME
from torchyard.workspaces.path_permissions import PathGuardedRoute


def router() -> APIRouter:
    routes = APIRouter(route_class=PathGuardedRoute, include_in_schema=False)

    @routes.get("/runs/{name}")
    def page(name: str, wsid: str = "") -> PlainTextResponse:
        workspace = wsid.partition("&")[0].rstrip("/").rpartition("/")[2]
        if not NAME.match(name) or not NAME.match(workspace or "default"):
            return PlainTextResponse("there is no such job\n", 404)
        where = f" -w {workspace}" if workspace else ""
        return PlainTextResponse(
            "torchyard has no web page yet. See the job in a terminal:\n\n"
            f"    yard job show -n {name}{where}\n    yard job stream -n {name}{where}\n"
        )

    return routes
