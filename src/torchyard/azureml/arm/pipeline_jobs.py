"""Pipelines as a type of Azure's jobs."""

from __future__ import annotations

from torchyard.azureml.arm import pipeline_documents, pipeline_resources, pipeline_resubmission
from torchyard.azureml.arm.job_kinds import JobKind

PIPELINES = JobKind(
    pipeline_documents.read, pipeline_resources.pipeline, pipeline_resubmission.require_same
)
