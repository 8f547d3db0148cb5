"""Every page of the web page, for the tests that look at each."""

from __future__ import annotations

WORKSPACE = "/ui/workspaces/default"

# By the name of its picture: the address below the workspace, and a text that is there once the
# page has what it shows. `{done}` and the others are names of the jobs that the tests start.
PAGES = {
    "jobs": ("/jobs", "text=logistic lr=0.5"),
    "jobs-grouped": ("/jobs?group=1&sort=metrics.loss", "text=logistic lr=0.5"),
    "job": ("/jobs/{done}", "role=figure >> nth=0"),
    "job-failed": ("/jobs/{failed}", "text=expected 128 features"),
    "job-metrics": ("/jobs/{done}?tab=metrics&smooth=0.6", "role=figure >> nth=0"),
    "job-logs": ("/jobs/{done}?tab=logs&find=loss", "text=rank 0 of 2"),
    "job-files": ("/jobs/{done}?tab=files&path=outputs/predictions.csv", "role=cell >> nth=0"),
    "job-code": ("/jobs/{done}?tab=code", "text=Learn to tell points"),
    "job-code-diff": ("/jobs/{done}?tab=code&other={slower}", "text=draw.gauss(0, 0.9)"),
    "job-children": ("/jobs/{done}?tab=children", "text=No child runs"),
    "sweep": ("/jobs/{sweep}", "text=4 of 4 trials"),
    "sweep-rungs": ("/jobs/{asha}", "text=Interval 4"),
    "sweep-overview": ("/jobs/{sweep}?tab=overview", "text=Search space"),
    "pipeline": ("/jobs/{pipeline}", "text=/5 steps: 5 completed/"),
    "pipeline-step": ("/jobs/{pipeline}?step=features", "text=Why it ran"),
    "pipeline-overview": ("/jobs/{pipeline}?tab=overview", "role=heading[name='Outputs']"),
    "job-environment": ("/jobs/{done}?tab=environment", "text=python:1"),
    "job-environment-files": (
        "/jobs/{done}?tab=environment&part=files",
        "text=FROM python",
    ),
    "job-environment-build": ("/jobs/{done}?tab=environment&part=build", "text=/Build log|built/"),
    "compare": ("/compare?job={done}&job={slower}", "role=figure >> nth=0"),
    "compare-experiment": ("/compare?experiment=logistic", "text=Scatter"),
    "model": ("/models/classifier", "text=Used by nothing yet"),
    "model-files": (
        "/models/classifier/1?tab=files&path=predictions.csv",
        "role=cell >> nth=0",
    ),
    "data-files": ("/data/scripts/1?tab=files&path=learn.py", "text=Learn to tell points"),
    "datastores": ("/data?tab=datastores&datastore=workspaceblobstore", "text=Data in it"),
    "models": ("/models", "h1"),
    "data": ("/data", "h1"),
    "environments": ("/environments?text=ACPT", "role=cell >> nth=0"),
    "environment": ("/environments/python", "text=In a job file"),
    "environment-files": ("/environments/python?tab=files", "text=FROM python"),
    "endpoints": ("/endpoints", "text=blue 100 %"),
    "endpoint": ("/endpoints/echo", "role=cell[name='1 of 1']"),
    "batch-endpoint": ("/endpoints/batch/numbers", 'a[href$="/jobs/numbers-first"]'),
    "computes": ("/computes", "role=img >> nth=0"),
    "compute": ("/computes/local", "text=Latest changes"),
    "settings": ("/settings", "role=cell >> nth=0"),
    "settings-tokens": ("/settings?tab=tokens", "text=Last used"),
    "settings-quotas": ("/settings?tab=quotas", "text=No quotas"),
    "settings-messages": ("/settings?tab=messages", "text='Nobody is told'"),
    "settings-audit": ("/settings?tab=audit", "role=cell >> nth=0"),
}
