"""The schema of torchyard 0.1.0.

This file never changes. A later version adds a file to this folder, and that file only adds tables,
columns and indexes.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0100"
down_revision = None

# 64 bits. SQLite's INTEGER has them too, and SQLite numbers only an INTEGER primary key itself.
_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _create_servers()
    _create_workspaces()
    _create_data()
    _create_compute()
    _create_environments()
    _create_components()
    _create_models()
    _create_jobs()
    _create_history()


def _create_servers() -> None:
    op.create_table(
        "installation",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("home", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_installation")),
    )
    op.create_table(
        "servers",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("start_time", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_servers")),
    )


def _create_workspaces() -> None:
    op.create_table(
        "workspaces",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("subscription_id", sa.String(64), nullable=False),
        sa.Column("resource_group", sa.String(128), nullable=False),
        sa.Column("location", sa.String(64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("retention_days", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("rehearse_on_cpu", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("allow_substitutes", sa.Boolean(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_workspaces")),
    )
    op.create_table(
        "people",
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("removed_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_people")),
    )
    op.create_table(
        "roles",
        sa.Column("user", sa.String(128), nullable=False),
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("role", sa.String(32), nullable=False),
        sa.Column("granted_by", sa.String(128), nullable=False),
        sa.Column("granted_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("user", "workspace", name=op.f("pk_roles")),
    )
    op.create_table(
        "tokens",
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("user", sa.String(128), nullable=False),
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("subject", sa.String(256), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("name", sa.String(64), nullable=False, server_default=""),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_tokens")),
    )
    op.create_index("ix_tokens_subject", "tokens", ["subject"])
    op.create_table(
        "quotas",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("user", sa.String(128), nullable=False),
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("most", _BIG, nullable=False),
        sa.Column("set_by", sa.String(128), nullable=False),
        sa.Column("set_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "user", "name", name=op.f("pk_quotas")),
    )
    op.create_table(
        "quota_requests",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("user", sa.String(128), nullable=False),
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("most", _BIG, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("answered_by", sa.String(128), nullable=False),
        sa.Column("answered_at", sa.BigInteger(), nullable=True),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_quota_requests")),
    )
    op.create_index("ix_quota_requests_workspace", "quota_requests", ["workspace"])


def _create_data() -> None:
    op.create_table(
        "datastores",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "name", name=op.f("pk_datastores")),
    )
    op.create_table(
        "data_assets",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("version", sa.String(64), nullable=False),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("properties", sa.JSON(), nullable=False),
        sa.Column("job", sa.String(256), nullable=False),
        sa.Column("archived", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_data_assets")),
    )
    op.create_index("ix_data_assets_job", "data_assets", ["job"])
    op.create_table(
        "url_maps",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("prefix", sa.String(512), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "prefix", name=op.f("pk_url_maps")),
    )
    op.create_table(
        "checksums",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("datastore", sa.String(256), nullable=False),
        sa.Column("path", sa.String(1024), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("size_bytes", _BIG, nullable=False),
        sa.Column("mark", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "datastore", "path", name=op.f("pk_checksums")),
    )
    op.create_table(
        "file_properties",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("datastore", sa.String(256), nullable=False),
        sa.Column("path", sa.String(1024), nullable=False),
        sa.Column("mark", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.Column("properties", sa.JSON(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("blocks", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "datastore", "path", name=op.f("pk_file_properties")),
    )
    op.create_table(
        "codes",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("version", sa.String(64), nullable=False),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("snapshot", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(128), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("properties", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "name", "version", name=op.f("pk_codes")),
    )
    op.create_index("ix_codes_hash", "codes", ["workspace", "hash"])
    op.create_table(
        "saved_datasets",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("dataflow", sa.Text(), nullable=False),
        sa.Column("properties", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "id", name=op.f("pk_saved_datasets")),
    )


def _create_compute() -> None:
    op.create_table(
        "computes",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("size", sa.String(64), nullable=False),
        sa.Column("tier", sa.String(16), nullable=False),
        sa.Column("min_instances", sa.Integer(), nullable=False),
        sa.Column("max_instances", sa.Integer(), nullable=False),
        sa.Column("idle_time_before_scale_down", sa.Integer(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("engine", sa.String(16), nullable=False, server_default="local"),
        sa.Column("cores", sa.Integer(), nullable=True),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("gpus", sa.Integer(), nullable=True),
        sa.Column("gpu_kind", sa.String(64), nullable=False, server_default=""),
        sa.Column("owner", sa.String(128), nullable=False, server_default=""),
        sa.Column("provisioning_state", sa.String(16), nullable=False, server_default="Succeeded"),
        sa.PrimaryKeyConstraint("workspace", "name", name=op.f("pk_computes")),
    )
    op.create_table(
        "cluster_nodes",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("compute", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("preempted", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "compute", "number", name=op.f("pk_cluster_nodes")),
    )
    op.create_table(
        "cluster_counts",
        sa.Column("id", _BIG, nullable=False),
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("compute", sa.String(64), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("current", sa.Integer(), nullable=False),
        sa.Column("running", sa.Integer(), nullable=False),
        sa.Column("target", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cluster_counts")),
    )
    op.create_index(
        "ix_cluster_counts_workspace_compute_id", "cluster_counts", ["workspace", "compute", "id"]
    )
    op.create_table(
        "cluster_usage",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("compute", sa.String(64), nullable=False),
        sa.Column("day", sa.String(10), nullable=False),
        sa.Column("node_seconds", sa.Double(), nullable=False),
        sa.Column("busy_seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "compute", "day", name=op.f("pk_cluster_usage")),
    )
    op.create_table(
        "node_slots",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("compute", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("attempt_id", sa.String(64), nullable=False),
        sa.Column("node", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "compute", "number", name=op.f("pk_node_slots")),
        sa.UniqueConstraint("attempt_id", "node", name=op.f("uq_node_slots_attempt_id_node")),
    )
    op.create_index("ix_node_slots_attempt_id", "node_slots", ["attempt_id"])


def _create_environments() -> None:
    op.create_table(
        "environment_assets",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("version", sa.String(64), nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("properties", sa.JSON(), nullable=False),
        sa.Column("archived", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_environment_assets")),
        sa.UniqueConstraint(
            "workspace",
            "name",
            "version",
            name=op.f("uq_environment_assets_workspace_name_version"),
        ),
    )
    op.create_table(
        "environment_builds",
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("lock", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("hint", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_environment_builds")),
    )


def _create_components() -> None:
    op.create_table(
        "components",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("version", sa.String(64), nullable=False),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("properties", sa.JSON(), nullable=False),
        sa.Column("anonymous", sa.Boolean(), nullable=False),
        sa.Column("archived", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_components")),
        sa.UniqueConstraint(
            "workspace", "name", "version", name=op.f("uq_components_workspace_name_version")
        ),
    )


def _create_models() -> None:
    op.create_table(
        "registered_models",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("aliases", sa.JSON(), nullable=False),
        sa.Column("last_version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "name", name=op.f("pk_registered_models")),
    )
    op.create_table(
        "models",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("job", sa.String(256), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("properties", sa.JSON(), nullable=False),
        sa.Column("files", sa.JSON(), nullable=False),
        sa.Column("single", sa.Boolean(), nullable=False),
        sa.Column("archived", sa.Boolean(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=True),
        sa.Column("run_link", sa.Text(), nullable=False, server_default=sa.text("''")),
        sa.Column("model_id", sa.String(64), nullable=False, server_default=sa.text("''")),
        sa.PrimaryKeyConstraint("workspace", "name", "version", name=op.f("pk_models")),
    )
    op.create_index("ix_models_job", "models", ["job"])
    op.create_table(
        "logged_models",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("experiment_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(500), nullable=False),
        sa.Column("run", sa.String(256), nullable=False),
        sa.Column("folder", sa.String(1024), nullable=False),
        sa.Column("type", sa.String(500), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.Column("deleted", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_logged_models")),
        sa.UniqueConstraint("workspace", "folder", name=op.f("uq_logged_models_workspace_folder")),
    )
    op.create_index("ix_logged_models_experiment_id", "logged_models", ["experiment_id"])
    op.create_index("ix_logged_models_workspace_run", "logged_models", ["workspace", "run"])
    op.create_table(
        "logged_model_metrics",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("model_id", sa.String(64), nullable=False),
        sa.Column("run", sa.String(256), nullable=False),
        sa.Column("key", sa.String(250), nullable=False),
        sa.Column("dataset_name", sa.String(500), nullable=False),
        sa.Column("dataset_digest", sa.String(128), nullable=False),
        sa.Column("timestamp", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint(
            "workspace",
            "model_id",
            "run",
            "key",
            "dataset_name",
            "dataset_digest",
            name=op.f("pk_logged_model_metrics"),
        ),
    )
    op.create_table(
        "run_models",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("run", sa.String(256), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("model_id", sa.String(64), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "workspace", "run", "kind", "model_id", "step", name=op.f("pk_run_models")
        ),
    )


def _create_jobs() -> None:
    op.create_table(
        "experiments",
        sa.Column("id", _BIG, nullable=False),
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("deleted", sa.Boolean(), nullable=False),
        sa.Column("artifact_location", sa.Text(), nullable=False, server_default=sa.text("''")),
        sa.Column("updated_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiments")),
        sa.UniqueConstraint("workspace", "name", name=op.f("uq_experiments_workspace_name")),
    )
    op.create_table(
        "jobs",
        sa.Column("id", _BIG, nullable=False),
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("type", sa.String(16), nullable=False),
        sa.Column("experiment_id", _BIG, nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("display_name", sa.String(256), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("spec_hash", sa.String(64), nullable=False),
        sa.Column("environment", sa.JSON(), nullable=True),
        sa.Column("environment_hash", sa.String(64), nullable=False),
        sa.Column("compute", sa.String(64), nullable=False),
        sa.Column("node_count", sa.Integer(), nullable=False),
        sa.Column("processes_per_node", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("properties", sa.JSON(), nullable=False),
        sa.Column("parent", sa.String(256), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("deleted", sa.Boolean(), nullable=False),
        sa.Column("archived", sa.Boolean(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("retry_at", sa.BigInteger(), nullable=True),
        sa.Column("avoided_slots", sa.JSON(), nullable=True),
        sa.Column("turn", sa.Integer(), nullable=False, server_default="1"),
        sa.Column("limit_s", sa.Float(), nullable=True),
        sa.Column("gpus", sa.Integer(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_jobs_experiment_id")
        ),
        sa.UniqueConstraint("workspace", "name", name=op.f("uq_jobs_workspace_name")),
    )
    op.create_index("ix_jobs_experiment_id", "jobs", ["experiment_id"])
    op.create_index("ix_jobs_preparing", "jobs", ["status", "environment_hash", "id"])
    op.create_index(
        "ix_jobs_queue", "jobs", ["status", "workspace", "compute", "turn", "id", "node_count"]
    )
    op.create_index(
        "ix_jobs_run_search",
        "jobs",
        ["experiment_id", "deleted", "started_at", "created_at", "name", "status", "ended_at"],
    )
    op.create_index("ix_jobs_status_id", "jobs", ["status", "id"])
    op.create_index("ix_jobs_workspace_id", "jobs", ["workspace", "id"])
    op.create_table(
        "events",
        sa.Column("job_id", _BIG, nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "seq", name=op.f("pk_events")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_events_job_id")),
    )
    op.create_table(
        "attempts",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("job_id", _BIG, nullable=False),
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("job_name", sa.String(256), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("node_count", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("handle", sa.JSON(), nullable=True),
        sa.Column("order", sa.String(16), nullable=False),
        sa.Column("order_reason", sa.String(32), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("clean", sa.Boolean(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("server", sa.String(32), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_attempts_job_id")),
        sa.UniqueConstraint("job_id", "number", name=op.f("uq_attempts_job_id_number")),
    )
    op.create_index("ix_attempts_clean_ended_at", "attempts", ["clean", "ended_at"])
    op.create_index("ix_attempts_ended_at", "attempts", ["ended_at"])
    op.create_index("ix_attempts_job_id", "attempts", ["job_id"])
    op.create_table(
        "attempt_nodes",
        sa.Column("attempt_id", sa.String(64), nullable=False),
        sa.Column("node", sa.Integer(), nullable=False),
        sa.Column("next_seq", sa.Integer(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("address", sa.String(128), nullable=False),
        sa.Column("port", sa.Integer(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("failed_at", sa.BigInteger(), nullable=True),
        sa.Column("preflight", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("attempt_id", "node", name=op.f("pk_attempt_nodes")),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_attempt_nodes_attempt_id")
        ),
    )
    op.create_table(
        "removed_jobs",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sa.Column("asked_by", sa.String(128), nullable=False),
        sa.Column("done_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_removed_jobs")),
    )
    op.create_index("ix_removed_jobs_done_at", "removed_jobs", ["done_at"])
    op.create_table(
        "stored_sizes",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("size_bytes", _BIG, nullable=False),
        sa.Column("snapshot", sa.String(64), nullable=False),
        sa.Column("snapshot_bytes", _BIG, nullable=False),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_stored_sizes")),
    )


def _create_history() -> None:
    op.create_table(
        "metrics",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("key", sa.String(250), nullable=False),
        sa.Column("points", sa.BigInteger(), nullable=False),
        sa.Column("blocks", sa.Integer(), nullable=False),
        sa.Column("latest_step", sa.BigInteger(), nullable=False),
        sa.Column("latest_timestamp", sa.BigInteger(), nullable=False),
        sa.Column("latest_value", sa.Double(), nullable=True),
        sa.Column("max_step", sa.BigInteger(), nullable=False),
        sa.Column("max_timestamp", sa.BigInteger(), nullable=False),
        sa.Column("tail", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "key", name=op.f("pk_metrics")),
    )
    op.create_table(
        "metric_blocks",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("key", sa.String(250), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("min_timestamp", sa.BigInteger(), nullable=False),
        sa.Column("max_timestamp", sa.BigInteger(), nullable=False),
        sa.Column("min_step", sa.BigInteger(), nullable=False),
        sa.Column("max_step", sa.BigInteger(), nullable=False),
        sa.Column("min_value", sa.Double(), nullable=True),
        sa.Column("max_value", sa.Double(), nullable=True),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "key", "number", name=op.f("pk_metric_blocks")),
    )
    op.create_table(
        "metric_rows",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("row_id", sa.String(64), nullable=False),
        sa.Column("key", sa.String(250), nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("columns", sa.JSON(), nullable=False),
        sa.Column("values", sa.JSON(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_metric_rows")),
        sa.UniqueConstraint("job_id", "row_id", name=op.f("uq_metric_rows_job_id_row_id")),
    )
    op.create_index("ix_metric_rows_job_id", "metric_rows", ["job_id"])
    op.create_table(
        "params",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("key", sa.String(250), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "key", name=op.f("pk_params")),
    )
    op.create_table(
        "run_datasets",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.String(500), nullable=False),
        sa.Column("digest", sa.String(128), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("context", sa.String(500), nullable=True),
        sa.Column("source_type", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("schema", sa.Text(), nullable=False),
        sa.Column("profile", sa.Text(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "name", "digest", name=op.f("pk_run_datasets")),
    )
    op.create_index("ix_run_datasets_name_job_id", "run_datasets", ["name", "job_id"])
    op.create_table(
        "run_requests",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("request", sa.String(64), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "request", name=op.f("pk_run_requests")),
    )
    op.create_table(
        "history_cursors",
        sa.Column("attempt_id", sa.String(64), nullable=False),
        sa.Column("node", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("next", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("attempt_id", "node", name=op.f("pk_history_cursors")),
    )
