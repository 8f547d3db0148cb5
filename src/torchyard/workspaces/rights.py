"""Which right each route needs: the one table of who may do what.

Owns: the rights, the least role that has each, the right of every route; Azure ML's are in
azure_rights.py.
Leaves: finding out who asks, and turning them away, to access.py.
Always: a route that is not in the table is the server's owner's alone, and a test fails until
it is; what a job's token may never do is not told by roles.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from torchyard.workspaces import azure_rights
from torchyard.workspaces.types import Role


class Right(Enum):
    """Value: in words what one may do; it follows `to`."""

    OPEN = "ask without a token"
    WORKER = "report for an attempt"
    SELF = "ask who one is"
    READ = "see what is in the workspace"
    LOG = "log to runs"
    JOB = "change jobs and runs"
    UPLOAD = "upload files"
    WRITE = "submit jobs, and register data and models"
    COMPUTE = "create, change or delete compute"
    SETTINGS = "change the workspace"
    PEOPLE = "give roles and quotas"
    SERVER = "administer the server"
    UNKNOWN = "ask what nobody has decided about"


LEAST: dict[Right, Role] = {
    Right.READ: Role.READER,
    Right.LOG: Role.DATA_SCIENTIST,
    Right.JOB: Role.DATA_SCIENTIST,
    Right.UPLOAD: Role.DATA_SCIENTIST,
    Right.WRITE: Role.DATA_SCIENTIST,
    Right.COMPUTE: Role.CONTRIBUTOR,
    Right.SETTINGS: Role.CONTRIBUTOR,
    Right.PEOPLE: Role.OWNER,
    Right.SERVER: Role.OWNER,
    Right.UNKNOWN: Role.OWNER,
}
# These are of the server, not of one workspace: a role counts only where it is everywhere.
EVERYWHERE = frozenset({Right.SELF, Right.SERVER, Right.UNKNOWN})
# With these a data scientist reaches their own jobs and runs; a contributor reaches all.
OWN = frozenset({Right.LOG, Right.JOB})
# What a running job may always do, whatever became of its owner's role.
OF_EVERY_JOB = frozenset({Right.READ, Right.LOG, Right.JOB})
NEVER_A_JOB = frozenset({Right.PEOPLE, Right.SERVER, Right.UNKNOWN})
# Too many to write down, and nothing that others would ask about; nor is any GET.
QUIET = frozenset({Right.OPEN, Right.WORKER, Right.READ, Right.LOG, Right.UPLOAD})

# MLflow's are meant with `/mlflow/{workspace}` before them, too, and with `/ajax-api/` for `/api/`.
_ML, _FILES, _W = "/api/2.0/mlflow", "/api/2.0/mlflow-artifacts", "/v1/workspaces/{workspace}"
TABLE = f"""
OPEN      GET     /health
OPEN      GET     /version
OPEN      GET     /api/3.0/mlflow/server-info
SELF      GET     /openapi.json
SELF      GET     /v1/whoami
SELF      GET     /v1/workspaces
SERVER    POST    /v1/workspaces
SERVER    DELETE  {_W}
READ      GET     {_W}
SETTINGS  PATCH   {_W}
SERVER    POST    /v1/gc
SERVER    GET     /v1/gc/settings
SERVER    PATCH   /v1/gc/settings

SELF      GET     /v1/users
SERVER    POST    /v1/users
SELF      GET     /v1/users/{{name}}
SERVER    DELETE  /v1/users/{{name}}
SERVER    PUT     /v1/users/{{name}}/role
SELF      GET     /v1/users/{{name}}/tokens
SELF      POST    /v1/users/{{name}}/tokens
SELF      DELETE  /v1/users/{{name}}/tokens/{{token}}
PEOPLE    PUT     {_W}/people/{{name}}
SERVER    GET     /v1/audit
PEOPLE    GET     {_W}/audit
READ      GET     {_W}/quotas
PEOPLE    PUT     {_W}/quotas
READ      GET     {_W}/quota-requests
WRITE     POST    {_W}/quota-requests
PEOPLE    POST    {_W}/quota-requests/{{request_id}}/approve
PEOPLE    POST    {_W}/quota-requests/{{request_id}}/deny

READ      GET     {_W}/computes
READ      GET     {_W}/computes/{{name}}
READ      GET     {_W}/computes/{{name}}/nodes
READ      GET     {_W}/computes/{{name}}/history
READ      GET     {_W}/compute-sizes
COMPUTE   PUT     {_W}/computes/{{name}}
COMPUTE   DELETE  {_W}/computes/{{name}}

UPLOAD    POST    {_W}/blobs/missing
UPLOAD    PUT     {_W}/blobs/{{sha256}}
UPLOAD    POST    {_W}/blobs
UPLOAD    PUT     {_W}/snapshots
READ      GET     {_W}/snapshots/{{snapshot_id}}
READ      GET     {_W}/blobs/{{sha256}}
READ      POST    {_W}/bundle
READ      GET     {_W}/datastores
READ      GET     {_W}/datastores/{{name}}
WRITE     PUT     {_W}/datastores/{{name}}
WRITE     DELETE  {_W}/datastores/{{name}}
READ      GET     {_W}/url-maps
SETTINGS  PUT     {_W}/url-maps
SETTINGS  DELETE  {_W}/url-maps
WRITE     POST    {_W}/data
READ      GET     {_W}/data
READ      GET     {_W}/data/{{name}}/versions/{{version}}
READ      GET     {_W}/data/{{name}}/versions/{{version}}/files
READ      GET     {_W}/data/{{name}}/versions/{{version}}/files/{{path:path}}
WRITE     POST    {_W}/data/{{name}}/archive
WRITE     POST    {_W}/data/{{name}}/restore
WRITE     POST    {_W}/data/{{name}}/versions/{{version}}/archive
WRITE     POST    {_W}/data/{{name}}/versions/{{version}}/restore
READ      GET     {_W}/environments
WRITE     POST    {_W}/environments
READ      GET     {_W}/environments/{{name}}/versions/{{version}}
READ      POST    {_W}/environments/resolve
READ      POST    {_W}/environments/definition
READ      POST    {_W}/environments/export
WRITE     POST    {_W}/environments/clone
WRITE     POST    {_W}/environments/use
WRITE     POST    {_W}/environments/build
READ      GET     {_W}/environments/builds/{{hash}}
WRITE     POST    {_W}/environments/{{name}}/archive
WRITE     POST    {_W}/environments/{{name}}/restore
WRITE     POST    {_W}/environments/{{name}}/versions/{{version}}/archive
WRITE     POST    {_W}/environments/{{name}}/versions/{{version}}/restore
WRITE     POST    {_W}/components
READ      GET     {_W}/components
READ      GET     {_W}/components/{{name}}/versions/{{version}}
WRITE     POST    {_W}/components/{{name}}/archive
WRITE     POST    {_W}/components/{{name}}/restore
WRITE     POST    {_W}/components/{{name}}/versions/{{version}}/archive
WRITE     POST    {_W}/components/{{name}}/versions/{{version}}/restore
WRITE     POST    {_W}/models
READ      GET     {_W}/models
READ      GET     {_W}/models/{{name}}/versions/{{version}}
WRITE     PATCH   {_W}/models/{{name}}/versions/{{version}}
WRITE     POST    {_W}/models/{{name}}/archive
WRITE     POST    {_W}/models/{{name}}/restore
WRITE     POST    {_W}/models/{{name}}/versions/{{version}}/archive
WRITE     POST    {_W}/models/{{name}}/versions/{{version}}/restore
READ      GET     {_W}/models/{{name}}/versions/{{version}}/files
READ      GET     {_W}/models/{{name}}/versions/{{version}}/files/{{path:path}}

WRITE     POST    {_W}/jobs
READ      POST    {_W}/jobs/validate
READ      GET     {_W}/jobs
READ      GET     {_W}/jobs/{{name}}
JOB       PATCH   {_W}/jobs/{{name}}
JOB       DELETE  {_W}/jobs/{{name}}
JOB       POST    {_W}/jobs/delete
READ      GET     {_W}/jobs/{{name}}/document
READ      GET     {_W}/jobs/{{name}}/preflight
READ      GET     {_W}/jobs/{{name}}/preflight
JOB       POST    {_W}/jobs/{{name}}/archive
JOB       POST    {_W}/jobs/{{name}}/restore
JOB       POST    {_W}/jobs/{{name}}/cancel
JOB       POST    {_W}/jobs/{{name}}/preempt
JOB       POST    {_W}/jobs/{{name}}/preempt
READ      GET     {_W}/jobs/{{name}}/stream
READ      GET     {_W}/jobs/{{name}}/files
READ      GET     {_W}/jobs/{{name}}/files/{{path:path}}
READ      GET     {_W}/jobs/{{name}}/outputs
READ      GET     {_W}/jobs/{{name}}/outputs/{{output}}/{{path:path}}
READ      GET     {_W}/jobs/{{name}}/metrics
READ      GET     {_W}/jobs/{{name}}/metrics/chart
READ      GET     {_W}/metrics/chart
READ      GET     {_W}/jobs/{{name}}/metrics/history
READ      GET     {_W}/jobs/{{name}}/metrics/export
READ      GET     {_W}/experiments

WORKER    POST    /v1/attempts/{{attempt_id}}/report
WORKER    GET     /v1/attempts/{{attempt_id}}/orders
WORKER    POST    /v1/attempts/{{attempt_id}}/meeting
WORKER    GET     /v1/attempts/{{attempt_id}}/meeting
WORKER    PUT     /v1/attempts/{{attempt_id}}/logs
WORKER    POST    /v1/attempts/{{attempt_id}}/history
WORKER    GET     /v1/attempts/{{attempt_id}}/blobs/{{sha256}}
WORKER    GET     /v1/attempts/{{attempt_id}}/inputs/{{name}}
WORKER    GET     /v1/attempts/{{attempt_id}}/inputs/{{name}}/files/{{path:path}}
WORKER    GET     /v1/attempts/{{attempt_id}}/earlier
WORKER    GET     /v1/attempts/{{attempt_id}}/earlier/{{output}}/{{path:path}}
WORKER    PUT     /v1/attempts/{{attempt_id}}/files/{{path:path}}
WORKER    PUT     /v1/attempts/{{attempt_id}}/outputs/{{output}}/{{path:path}}

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
    rest: dict[str, Right] = field(default_factory=dict)
    rights: dict[str, Right] = field(default_factory=dict)


def _grown(table: str) -> _Step:
    root = _Step()
    for line in table.split("\n"):
        if not line:
            continue
        right, method, path = line.split()
        step, parts = root, path.split("/")[1:]
        whole = parts[-1].endswith(":path}")
        for part in parts[:-1] if whole else parts:
            if part.startswith("{"):
                step.name = step.name or _Step()
                step = step.name
            else:
                step = step.literal.setdefault(part, _Step())
        (step.rest if whole else step.rights)[method] = Right[right]
    return root


_ROOT = _grown(TABLE)


def of(method: str, path: str) -> Right:
    """The right that a request needs; `UNKNOWN` when nobody has written it into the table."""
    parts = path.split("/")[1:]
    if parts[0] == "mlflow" and len(parts) > 2:
        parts = parts[2:]
    if parts[0] == "ajax-api":
        parts[0] = "api"
    return _find(_ROOT, parts, method) or Right.UNKNOWN


def _find(step: _Step, parts: list[str], method: str) -> Right | None:
    if not parts:
        return step.rights.get(method)
    following = step.literal.get(parts[0])
    found = _find(following, parts[1:], method) if following is not None else None
    if found is None and step.name is not None and parts[0]:
        found = _find(step.name, parts[1:], method)
    return found or step.rest.get(method) or step.rest.get("*")
