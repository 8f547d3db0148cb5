"""Sweeps as a type of Azure's jobs."""

from __future__ import annotations

from torchyard.azureml.arm import sweep_documents, sweep_resources, sweep_resubmission
from torchyard.azureml.arm.job_kinds import JobKind

SWEEPS = JobKind(sweep_documents.read, sweep_resources.sweep, sweep_resubmission.require_same)
