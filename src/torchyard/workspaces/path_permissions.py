"""The permissions and body limits of protocol routes that do not declare their own yet.

Owns: the table of MLflow's paths, the route class that looks a request up by its path.
Leaves: Azure ML's paths to azure_rights.py, declared permissions to guarded_routes.py.
Always: a path that is in no table needs `UNKNOWN`, which only the server's owners have.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request, Response

from torchyard.base import request_bodies
from torchyard.workspaces import audit, azure_rights
from torchyard.workspaces.guarded_routes import GuardedRoute, Handle, Needs, declared_needs
from torchyard.workspaces.permissions import Permission

# MLflow's are meant with `/mlflow/{workspace}` before them, too, and with `/ajax-api/` for `/api/`.
_ML, _FILES = "/api/2.0/mlflow", "/api/2.0/mlflow-artifacts"
TABLE = f"""
OPEN      GET     /version
OPEN      GET     /api/3.0/mlflow/server-info
LOG       POST    {_ML}/runs/log-metric
LOG       POST    {_ML}/runs/log-parameter
LOG       POST    {_ML}/runs/log-batch
LOG       POST    {_ML}/runs/log-batch-async
LOG       POST    {_ML}/runs/log-inputs
LOG       POST    {_ML}/runs/log-model
LOG       POST    {_ML}/runs/outputs
LOG       POST    {_ML}/runs/set-tag
LOG       POST    {_ML}/runs/delete-tag
JOB       POST    {_ML}/runs/create
JOB       POST    {_ML}/runs/update
JOB       POST    {_ML}/runs/delete
JOB       POST    {_ML}/runs/restore
READ      GET     {_ML}/runs/get
READ      POST    {_ML}/runs/search
WRITE     POST    {_ML}/experiments/create
READ      GET     {_ML}/experiments/get
READ      GET     {_ML}/experiments/get-by-name
READ      GET     {_ML}/experiments/search
READ      POST    {_ML}/experiments/search
READ      GET     {_ML}/experiments/list
READ      POST    {_ML}/experiments/search-datasets
SETTINGS  POST    {_ML}/experiments/update
SETTINGS  POST    {_ML}/experiments/delete
SETTINGS  POST    {_ML}/experiments/restore
WRITE     POST    {_ML}/experiments/set-experiment-tag
WRITE     POST    {_ML}/experiments/delete-experiment-tag
READ      GET     {_ML}/artifacts/list
READ      GET     {_FILES}/artifacts
READ      GET     {_FILES}/artifacts/{{path:path}}
READ      GET     /get-artifact
READ      GET     /model-versions/get-artifact
READ      GET     //model-versions/get-artifact
LOG       POST    {_ML}/upload-artifact
LOG       PUT     {_FILES}/artifacts/{{path:path}}
JOB       DELETE  {_FILES}/artifacts/{{path:path}}
LOG       POST    {_FILES}/mpu/create
LOG       POST    {_FILES}/mpu/create/{{path:path}}
LOG       PUT     {_FILES}/mpu/parts/{{upload}}/{{number}}
LOG       POST    {_FILES}/mpu/complete
LOG       POST    {_FILES}/mpu/complete/{{path:path}}
LOG       POST    {_FILES}/mpu/abort
LOG       POST    {_FILES}/mpu/abort/{{path:path}}
READ      GET     {_ML}/metrics/get-history
READ      GET     {_ML}/metrics/get-history-bulk
READ      GET     {_ML}/metrics/get-history-bulk-interval
WRITE     POST    {_ML}/registered-models/create
READ      GET     {_ML}/registered-models/get
WRITE     PATCH   {_ML}/registered-models/update
WRITE     POST    {_ML}/registered-models/rename
WRITE     DELETE  {_ML}/registered-models/delete
READ      GET     {_ML}/registered-models/search
READ      GET     {_ML}/registered-models/get-latest-versions
READ      POST    {_ML}/registered-models/get-latest-versions
WRITE     POST    {_ML}/registered-models/set-tag
WRITE     DELETE  {_ML}/registered-models/delete-tag
WRITE     POST    {_ML}/registered-models/alias
WRITE     DELETE  {_ML}/registered-models/alias
READ      GET     {_ML}/registered-models/alias
WRITE     POST    {_ML}/model-versions/create
READ      GET     {_ML}/model-versions/get
WRITE     PATCH   {_ML}/model-versions/update
WRITE     DELETE  {_ML}/model-versions/delete
WRITE     POST    {_ML}/model-versions/transition-stage
READ      GET     {_ML}/model-versions/search
READ      GET     {_ML}/model-versions/get-download-uri
WRITE     POST    {_ML}/model-versions/set-tag
WRITE     DELETE  {_ML}/model-versions/delete-tag
LOG       POST    {_ML}/logged-models
READ      POST    {_ML}/logged-models/search
READ      GET     {_ML}/logged-models/{{model_id}}
LOG       PATCH   {_ML}/logged-models/{{model_id}}
WRITE     DELETE  {_ML}/logged-models/{{model_id}}
LOG       PATCH   {_ML}/logged-models/{{model_id}}/tags
LOG       DELETE  {_ML}/logged-models/{{model_id}}/tags/{{key:path}}
LOG       POST    {_ML}/logged-models/{{model_id}}/params
READ      GET     {_ML}/logged-models/{{model_id}}/artifacts/directories
READ      GET     {_ML}/logged-models/{{model_id}}/artifacts/files
READ      *       {_ML}/{{path:path}}
READ      *       {_FILES}/{{path:path}}
READ      *       /api/3.0/mlflow/{{path:path}}
"""
TABLE += azure_rights.TABLE


@dataclass
class _Step:
    """What may follow in a path: literally, as a name, or as all the rest."""

    literal: dict[str, _Step] = field(default_factory=dict)
    name: _Step | None = None
    rest: dict[str, Permission] = field(default_factory=dict)
    permissions: dict[str, Permission] = field(default_factory=dict)


def _grown(table: str) -> _Step:
    root = _Step()
    for line in table.split("\n"):
        if not line:
            continue
        permission, method, path = line.split()
        step, parts = root, path.split("/")[1:]
        whole = parts[-1].endswith(":path}")
        for part in parts[:-1] if whole else parts:
            if part.startswith("{"):
                step.name = step.name or _Step()
                step = step.name
            else:
                step = step.literal.setdefault(part, _Step())
        (step.rest if whole else step.permissions)[method] = Permission[permission]
    return root


_ROOT = _grown(TABLE)


def of(method: str, path: str) -> Permission:
    """The permission that a request needs; `UNKNOWN` when nobody has written it into the table."""
    parts = path.split("/")[1:]
    if parts[0] == "mlflow" and len(parts) > 2:
        parts = parts[2:]
    if parts[0] == "ajax-api":
        parts[0] = "api"
    return _find(_ROOT, parts, method) or Permission.UNKNOWN


def _find(step: _Step, parts: list[str], method: str) -> Permission | None:
    if not parts:
        return step.permissions.get(method)
    following = step.literal.get(parts[0])
    found = _find(following, parts[1:], method) if following is not None else None
    if found is None and step.name is not None and parts[0]:
        found = _find(step.name, parts[1:], method)
    return found or step.rest.get(method) or step.rest.get("*")


# Routes that write to disk what they read; their packages say how much.
_STREAMED = re.compile(
    r"(?:/mlflow/[^/]+)?/(?:ajax-)?api/2\.0/mlflow-artifacts/(?:artifacts/.*|mpu/parts/[^/]+/\d+)",
    re.DOTALL,
)
# Its requests are signed and carry no token; nothing of a body is read before the signature is.
_SIGNED = re.compile(r"/azureml-blob/.*", re.DOTALL)


class PathGuardedRoute(GuardedRoute):
    """A route whose endpoint may still leave its permission to the tables.

    Then the endpoint's own dependencies enforce it, after the body was read.
    """

    def _needs_of(self, path: str, endpoint: Callable[..., Any]) -> Needs | None:
        return declared_needs(endpoint)

    def guard(self, handle: Handle) -> Handle:
        if self.needs is not None:
            return super().guard(handle)

        async def guarded(request: Request) -> Response:
            path = request.scope["path"]
            audit.note_permission(request.scope, of(request.method, path))
            limit_bytes = _body_limit_bytes(request, path)
            return await handle(await request_bodies.with_body(request, limit_bytes))

        return guarded


def _body_limit_bytes(request: Request, path: str) -> int:
    if _SIGNED.fullmatch(path):
        return request_bodies.UNLIMITED
    if request.headers.get("authorization", "")[:7].lower() != "bearer ":
        return request_bodies.STRANGERS_LIMIT_BYTES
    if request.method in ("PUT", "POST") and _STREAMED.fullmatch(path):
        return request_bodies.UNLIMITED
    return request_bodies.DEFAULT_LIMIT_BYTES
