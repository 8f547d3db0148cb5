"""Carry out what was decided for a deployment.

Owns: the changes of rows and jobs that belong to each kind of step; where figures are logged.
Leaves: the decision to decisions.py, the job's document to instance_jobs.py.
Always: a row is written before its job is made, so that no job is forgotten; a deployment's state
is changed only while its revision is the one that was looked at.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from torchyard.base.errors import TorchyardError
from torchyard.endpoints.records import store
from torchyard.endpoints.records.types import (
    Deployment,
    Endpoint,
    Instance,
    InstanceState,
    ProvisioningState,
)
from torchyard.endpoints.running import environments, instance_jobs
from torchyard.endpoints.running.decisions import Key, Kind, Step
from torchyard.endpoints.running.measuring import Figures
from torchyard.endpoints.spec.deployment_spec import DeploymentSpec
from torchyard.jobs import actions as jobs
from torchyard.jobs.history.history_records import without_step
from torchyard.jobs.services import Services
from torchyard.workspaces import rights

_MESSAGE_MOST = 2000
_log = logging.getLogger(__name__)


class Steps:
    def __init__(self, services: Services) -> None:
        self._services = services

    def carry_out(
        self, step: Step, deployment: Deployment, spec: DeploymentSpec, path: str
    ) -> None:
        """
        Args:
            spec: of the step's revision.
            path: of the socket where the step's instance serves, if it does.
        """
        instance = self._instance(deployment, step.key)
        if step.kind is Kind.START:
            self._start(deployment, spec, step.key, 1 if instance is None else instance.starts)
        elif step.kind is Kind.PROMOTE:
            self._promote(deployment, spec)
        elif step.kind is Kind.FAIL:
            self._fail(deployment, instance, step.message)
        elif step.kind is Kind.REMOVE:
            with self._services.db.write() as connection:
                store.remove_deployment(connection, deployment)
        elif instance is None:
            return
        elif step.kind is Kind.RESTART:
            self._cancel(instance, kill=True)
            self._start(deployment, spec, step.key, instance.starts + 1)
        elif step.kind is Kind.READY and path:
            self._change(instance, state=InstanceState.READY, host=path, message="")
        elif step.kind is Kind.UNREADY:
            message = f"its readiness probe fails: {step.message}"
            self._change(instance, state=InstanceState.UNREADY, message=message[:_MESSAGE_MOST])
        elif step.kind is Kind.WAIT:
            self._change(instance, message=step.message[:_MESSAGE_MOST])
        elif step.kind is Kind.DRAIN:
            self._change(instance, state=InstanceState.DRAINING)
        elif step.kind is Kind.FAILED:
            self._change(instance, state=InstanceState.FAILED, message=step.message[:_MESSAGE_MOST])
        elif step.kind is Kind.END:
            self._end(instance)

    def say_who_may_run(self, deployment: Deployment, may_run: bool) -> None:
        """Let the deployment say that its owner may run nothing any more, or no longer say so."""
        refusal = rights.refusal(deployment.owner, deployment.workspace).message
        is_said = deployment.message == refusal and deployment.state.is_final
        if may_run != is_said or deployment.state is ProvisioningState.DELETING:
            return
        state, message = ProvisioningState.FAILED, refusal
        if may_run:
            is_served = deployment.served_revision == deployment.revision
            state = ProvisioningState.SUCCEEDED if is_served else ProvisioningState.FAILED
            message = ""
        with self._services.db.write() as connection:
            store.change_deployment(
                connection, deployment, deployment.revision, state=state, message=message
            )

    def finish(self, changed: Sequence[Endpoint | Deployment]) -> None:
        """The router works by what was wanted of them."""
        with self._services.db.write() as connection:
            for each in changed:
                store.finish(connection, each)

    def record(self, there: Sequence[Instance], figures: Figures) -> None:
        """Log a deployment's figures as metrics of the job of its first instance that answers."""
        ready = [each for each in there if each.state is InstanceState.READY]
        first = min(ready, key=lambda each: (-each.revision, each.number), default=None)
        job = None if first is None else instance_jobs.find(self._services.db, first)
        if job is None or job.status.ended:
            return
        moment_us = int(self._services.clock.now().timestamp() * 1_000_000)
        metrics = [without_step(key, value, moment_us) for key, value in vars(figures).items()]
        self._services.history.append(job.id, metrics)

    def remove_endpoint(self, endpoint: Endpoint) -> None:
        with self._services.db.write() as connection:
            store.remove_endpoint(connection, endpoint)

    def _start(self, deployment: Deployment, spec: DeploymentSpec, key: Key, starts: int) -> None:
        revision, number = key
        job = instance_jobs.new_name(deployment, revision, number)
        now = self._services.clock.now()
        deployment_key = (deployment.workspace, deployment.endpoint, deployment.name)
        instance = Instance(
            *deployment_key, revision, number, job, InstanceState.STARTING, "", "", now, starts
        )
        with self._services.db.write() as connection:
            store.put_instance(connection, instance)
        try:
            instance_jobs.start(self._services, deployment, spec, instance)
        except TorchyardError as error:
            self._refused(deployment, instance, error)
            return
        self._say_what_was_added(deployment, spec, revision)

    def _refused(self, deployment: Deployment, instance: Instance, error: TorchyardError) -> None:
        """Its job can't be made: what it names is gone, or a quota leaves no place."""
        message = f"{error}"
        _log.warning("instance %s of %s: %s", instance.id, instance.endpoint, message)
        if deployment.served_revision != instance.revision:
            self._fail(deployment, instance, message)
        else:
            self._change(instance, message=message[:_MESSAGE_MOST])

    def _say_what_was_added(
        self, deployment: Deployment, spec: DeploymentSpec, revision: int
    ) -> None:
        _, _, message = environments.for_instances(
            self._services.environments, deployment.workspace, spec
        )
        if message and message != deployment.message:
            with self._services.db.write() as connection:
                store.change_deployment(connection, deployment, revision, message=message)

    def _promote(self, deployment: Deployment, spec: DeploymentSpec) -> None:
        with self._services.db.write() as connection:
            store.change_deployment(
                connection,
                deployment,
                deployment.revision,
                deployment.changed_at,
                served_document=dict(deployment.document),
                served_revision=deployment.revision,
            )

    def _fail(self, deployment: Deployment, instance: Instance | None, message: str) -> None:
        message = (message or "its instance ended")[:_MESSAGE_MOST]
        if deployment.served_revision:
            message += f"; revision {deployment.served_revision} goes on answering"
        with self._services.db.write() as connection:
            is_changed = store.change_deployment(
                connection,
                deployment,
                deployment.revision,
                state=ProvisioningState.FAILED,
                message=message,
                changed_at=self._services.clock.now(),
            )
            if is_changed and instance is not None:
                store.change_instance(
                    connection, instance, state=InstanceState.FAILED, message=message
                )

    def _end(self, instance: Instance) -> None:
        """Its row stays as long as its job has not ended: what is gone runs nowhere."""
        if self._cancel(instance):
            self._change(instance, state=InstanceState.DRAINING)
            return
        with self._services.db.write() as connection:
            store.remove_instance(connection, instance)

    def _cancel(self, instance: Instance, kill: bool = False) -> bool:
        """Whether its job had not ended; canceling it again changes nothing."""
        job = instance_jobs.find(self._services.db, instance)
        if job is None or job.status.ended:
            return False
        jobs.cancel(self._services, instance.workspace, job.name, kill=kill)
        return True

    def _change(self, instance: Instance, **values: Any) -> None:
        with self._services.db.write() as connection:
            store.change_instance(connection, instance, **values)

    def _instance(self, deployment: Deployment, key: Key) -> Instance | None:
        deployment_key = (deployment.workspace, deployment.endpoint, deployment.name)
        with self._services.db.read() as connection:
            for each in store.instances_in(connection, *deployment_key):
                if (each.revision, each.number) == key:
                    return each
        return None
