SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE public.adopted_jobs (
    job_id bigint NOT NULL,
    child_id bigint NOT NULL
);
CREATE TABLE public.advisories (
    number integer NOT NULL,
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    set_id character varying(64) NOT NULL COLLATE pg_catalog."C",
    package character varying(256) NOT NULL COLLATE pg_catalog."C",
    entry json NOT NULL
);
CREATE SEQUENCE public.advisories_number_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.advisories_number_seq OWNED BY public.advisories.number;
CREATE TABLE public.advisory_sets (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    id character varying(64) NOT NULL COLLATE pg_catalog."C",
    replaced_at bigint NOT NULL,
    sent_by character varying(128) NOT NULL COLLATE pg_catalog."C",
    count integer NOT NULL
);
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.attempt_nodes (
    attempt_id character varying(64) NOT NULL COLLATE pg_catalog."C",
    node integer NOT NULL,
    next_seq integer NOT NULL,
    seen_at bigint NOT NULL,
    state character varying(16) NOT NULL COLLATE pg_catalog."C",
    address character varying(128) NOT NULL COLLATE pg_catalog."C",
    port integer,
    exit_code integer,
    error json,
    failed_at bigint,
    preflight json,
    interactive json,
    ran_s double precision
);
CREATE TABLE public.attempts (
    id character varying(64) NOT NULL COLLATE pg_catalog."C",
    job_id bigint NOT NULL,
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    job_name character varying(256) NOT NULL COLLATE pg_catalog."C",
    number integer NOT NULL,
    node_count integer NOT NULL,
    created_at bigint NOT NULL,
    handle json,
    "order" character varying(16) NOT NULL COLLATE pg_catalog."C",
    order_reason character varying(32) NOT NULL COLLATE pg_catalog."C",
    ended_at bigint,
    clean boolean NOT NULL,
    exit_code integer,
    error json,
    server character varying(32) COLLATE pg_catalog."C",
    engine character varying(16) DEFAULT 'local'::character varying NOT NULL COLLATE pg_catalog."C",
    waiting_for text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.batch_deployments (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    endpoint character varying(64) NOT NULL COLLATE pg_catalog."C",
    name character varying(64) NOT NULL COLLATE pg_catalog."C",
    owner character varying(128) NOT NULL COLLATE pg_catalog."C",
    document json NOT NULL,
    created_at bigint NOT NULL,
    changed_at bigint NOT NULL
);
CREATE TABLE public.batch_endpoints (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    name character varying(64) NOT NULL COLLATE pg_catalog."C",
    owner character varying(128) NOT NULL COLLATE pg_catalog."C",
    document json NOT NULL,
    default_deployment character varying(64) NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    changed_at bigint NOT NULL
);
CREATE TABLE public.batch_jobs (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    job character varying(256) NOT NULL COLLATE pg_catalog."C",
    endpoint character varying(64) NOT NULL COLLATE pg_catalog."C",
    deployment character varying(64) NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL
);
CREATE TABLE public.checksums (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    datastore character varying(256) NOT NULL COLLATE pg_catalog."C",
    path character varying(1024) NOT NULL COLLATE pg_catalog."C",
    sha256 character varying(64) NOT NULL COLLATE pg_catalog."C",
    size_bytes bigint NOT NULL,
    mark text NOT NULL COLLATE pg_catalog."C",
    job character varying(256) DEFAULT ''::character varying NOT NULL COLLATE pg_catalog."C",
    written_at bigint
);
CREATE TABLE public.cluster_counts (
    id bigint NOT NULL,
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    compute character varying(64) NOT NULL COLLATE pg_catalog."C",
    at bigint NOT NULL,
    current integer NOT NULL,
    running integer NOT NULL,
    target integer NOT NULL,
    reason text NOT NULL COLLATE pg_catalog."C",
    machines integer
);
CREATE SEQUENCE public.cluster_counts_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.cluster_counts_id_seq OWNED BY public.cluster_counts.id;
CREATE TABLE public.cluster_nodes (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    compute character varying(64) NOT NULL COLLATE pg_catalog."C",
    number integer NOT NULL,
    made_at bigint NOT NULL,
    since bigint NOT NULL,
    preempted boolean NOT NULL
);
CREATE TABLE public.cluster_usage (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    compute character varying(64) NOT NULL COLLATE pg_catalog."C",
    day character varying(10) NOT NULL COLLATE pg_catalog."C",
    node_seconds double precision NOT NULL,
    busy_seconds double precision NOT NULL
);
CREATE TABLE public.codes (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    name character varying(256) NOT NULL COLLATE pg_catalog."C",
    version character varying(64) NOT NULL COLLATE pg_catalog."C",
    uri text NOT NULL COLLATE pg_catalog."C",
    snapshot character varying(64) NOT NULL COLLATE pg_catalog."C",
    hash character varying(128) NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    owner character varying(128) NOT NULL COLLATE pg_catalog."C",
    description text NOT NULL COLLATE pg_catalog."C",
    tags json NOT NULL,
    properties json NOT NULL
);
CREATE TABLE public.components (
    number integer NOT NULL,
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    name character varying(256) NOT NULL COLLATE pg_catalog."C",
    version character varying(64) NOT NULL COLLATE pg_catalog."C",
    type character varying(32) NOT NULL COLLATE pg_catalog."C",
    definition json NOT NULL,
    hash character varying(64) NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    owner character varying(128) NOT NULL COLLATE pg_catalog."C",
    description text NOT NULL COLLATE pg_catalog."C",
    tags json NOT NULL,
    properties json NOT NULL,
    anonymous boolean NOT NULL,
    archived boolean NOT NULL
);
CREATE SEQUENCE public.components_number_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.components_number_seq OWNED BY public.components.number;
CREATE TABLE public.computes (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    name character varying(64) NOT NULL COLLATE pg_catalog."C",
    type character varying(32) NOT NULL COLLATE pg_catalog."C",
    size character varying(64) NOT NULL COLLATE pg_catalog."C",
    tier character varying(16) NOT NULL COLLATE pg_catalog."C",
    min_instances integer NOT NULL,
    max_instances integer NOT NULL,
    idle_time_before_scale_down integer NOT NULL,
    description text NOT NULL COLLATE pg_catalog."C",
    tags json,
    created_at bigint NOT NULL,
    engine character varying(16) DEFAULT 'local'::character varying NOT NULL COLLATE pg_catalog."C",
    cores integer,
    memory_bytes bigint,
    gpus integer,
    gpu_kind character varying(64) DEFAULT ''::character varying NOT NULL COLLATE pg_catalog."C",
    owner character varying(128) DEFAULT ''::character varying NOT NULL COLLATE pg_catalog."C",
    provisioning_state character varying(16) DEFAULT 'Succeeded'::character varying NOT NULL COLLATE pg_catalog."C",
    engine_settings json
);
CREATE TABLE public.data_assets (
    number integer NOT NULL,
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    name character varying(256) NOT NULL COLLATE pg_catalog."C",
    version character varying(64) NOT NULL COLLATE pg_catalog."C",
    type character varying(32) NOT NULL COLLATE pg_catalog."C",
    uri text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    owner character varying(128) NOT NULL COLLATE pg_catalog."C",
    description text NOT NULL COLLATE pg_catalog."C",
    tags json NOT NULL,
    properties json NOT NULL,
    job character varying(256) NOT NULL COLLATE pg_catalog."C",
    archived boolean NOT NULL
);
CREATE SEQUENCE public.data_assets_number_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.data_assets_number_seq OWNED BY public.data_assets.number;
CREATE TABLE public.datastores (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    name character varying(256) NOT NULL COLLATE pg_catalog."C",
    kind character varying(32) NOT NULL COLLATE pg_catalog."C",
    url text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    options json NOT NULL,
    document json NOT NULL,
    description text NOT NULL COLLATE pg_catalog."C",
    tags json NOT NULL,
    owner character varying(128) DEFAULT ''::character varying NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.deleted_versions (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    kind character varying(16) NOT NULL COLLATE pg_catalog."C",
    name character varying(256) NOT NULL COLLATE pg_catalog."C",
    version character varying(64) NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.deployment_instances (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    endpoint character varying(64) NOT NULL COLLATE pg_catalog."C",
    deployment character varying(64) NOT NULL COLLATE pg_catalog."C",
    revision integer NOT NULL,
    number integer NOT NULL,
    job character varying(256) NOT NULL COLLATE pg_catalog."C",
    state character varying(16) NOT NULL COLLATE pg_catalog."C",
    host character varying(255) NOT NULL COLLATE pg_catalog."C",
    port integer NOT NULL,
    message text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    starts integer NOT NULL
);
CREATE TABLE public.deployments (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    endpoint character varying(64) NOT NULL COLLATE pg_catalog."C",
    name character varying(64) NOT NULL COLLATE pg_catalog."C",
    owner character varying(128) NOT NULL COLLATE pg_catalog."C",
    document json NOT NULL,
    state character varying(16) NOT NULL COLLATE pg_catalog."C",
    message text NOT NULL COLLATE pg_catalog."C",
    revision integer NOT NULL,
    created_at bigint NOT NULL,
    changed_at bigint NOT NULL,
    served_document json NOT NULL,
    served_revision integer NOT NULL
);
CREATE TABLE public.endpoint_keys (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    endpoint character varying(64) NOT NULL COLLATE pg_catalog."C",
    "primary" character varying(255) NOT NULL COLLATE pg_catalog."C",
    secondary character varying(255) NOT NULL COLLATE pg_catalog."C",
    token_secret character varying(255) NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.endpoints (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    name character varying(64) NOT NULL COLLATE pg_catalog."C",
    owner character varying(128) NOT NULL COLLATE pg_catalog."C",
    document json NOT NULL,
    auth_mode character varying(16) NOT NULL COLLATE pg_catalog."C",
    traffic json NOT NULL,
    mirror_traffic json NOT NULL,
    state character varying(16) NOT NULL COLLATE pg_catalog."C",
    message text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    changed_at bigint NOT NULL
);
CREATE TABLE public.environment_assets (
    number integer NOT NULL,
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    name character varying(256) NOT NULL COLLATE pg_catalog."C",
    version character varying(64) NOT NULL COLLATE pg_catalog."C",
    definition json NOT NULL,
    created_at bigint NOT NULL,
    owner character varying(128) NOT NULL COLLATE pg_catalog."C",
    description text NOT NULL COLLATE pg_catalog."C",
    tags json NOT NULL,
    properties json NOT NULL,
    archived boolean NOT NULL
);
CREATE SEQUENCE public.environment_assets_number_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.environment_assets_number_seq OWNED BY public.environment_assets.number;
CREATE TABLE public.environment_builds (
    hash character varying(64) NOT NULL COLLATE pg_catalog."C",
    spec text NOT NULL COLLATE pg_catalog."C",
    status character varying(16) NOT NULL COLLATE pg_catalog."C",
    number integer NOT NULL,
    lock text NOT NULL COLLATE pg_catalog."C",
    started_at bigint NOT NULL,
    ended_at bigint,
    error text NOT NULL COLLATE pg_catalog."C",
    hint text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.environment_releases (
    number integer NOT NULL,
    job_id bigint NOT NULL,
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    job character varying(256) NOT NULL COLLATE pg_catalog."C",
    kind character varying(32) NOT NULL COLLATE pg_catalog."C",
    environment character varying(256) NOT NULL COLLATE pg_catalog."C",
    base character varying(330) NOT NULL COLLATE pg_catalog."C",
    owner character varying(128) NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    request json NOT NULL,
    stage character varying(16) NOT NULL COLLATE pg_catalog."C",
    gates json NOT NULL,
    results json NOT NULL,
    report json NOT NULL,
    version character varying(64) NOT NULL COLLATE pg_catalog."C"
);
CREATE SEQUENCE public.environment_releases_number_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.environment_releases_number_seq OWNED BY public.environment_releases.number;
CREATE TABLE public.events (
    job_id bigint NOT NULL,
    seq integer NOT NULL,
    at bigint NOT NULL,
    kind character varying(16) NOT NULL COLLATE pg_catalog."C",
    body json NOT NULL
);
CREATE TABLE public.experiments (
    id bigint NOT NULL,
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    name character varying(256) NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    tags json NOT NULL,
    deleted boolean NOT NULL,
    artifact_location text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    updated_at bigint
);
CREATE SEQUENCE public.experiments_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.experiments_id_seq OWNED BY public.experiments.id;
CREATE TABLE public.file_properties (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    datastore character varying(256) NOT NULL COLLATE pg_catalog."C",
    path character varying(1024) NOT NULL COLLATE pg_catalog."C",
    mark text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    changed_at bigint NOT NULL,
    properties json NOT NULL,
    metadata json NOT NULL,
    blocks json NOT NULL
);
CREATE TABLE public.history_cursors (
    attempt_id character varying(64) NOT NULL COLLATE pg_catalog."C",
    node integer NOT NULL,
    next bigint NOT NULL
);
CREATE TABLE public.installation (
    id character varying(64) NOT NULL COLLATE pg_catalog."C",
    home text NOT NULL COLLATE pg_catalog."C",
    host text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL
);
CREATE TABLE public.instances (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    name character varying(64) NOT NULL COLLATE pg_catalog."C",
    owner character varying(128) NOT NULL COLLATE pg_catalog."C",
    document json NOT NULL,
    state character varying(32) NOT NULL COLLATE pg_catalog."C",
    message text NOT NULL COLLATE pg_catalog."C",
    job character varying(255) NOT NULL COLLATE pg_catalog."C",
    starts integer NOT NULL,
    created_at bigint NOT NULL,
    active_at bigint NOT NULL,
    scheduled_at bigint NOT NULL
);
CREATE TABLE public.job_letters (
    batch integer NOT NULL,
    letters integer NOT NULL,
    ids bytea NOT NULL
);
CREATE TABLE public.job_renames (
    id bigint NOT NULL,
    job bigint NOT NULL
);
CREATE SEQUENCE public.job_renames_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.job_renames_id_seq OWNED BY public.job_renames.id;
CREATE TABLE public.job_tags (
    key character varying(250) NOT NULL COLLATE pg_catalog."C",
    value character varying(64) NOT NULL COLLATE pg_catalog."C",
    job_id bigint NOT NULL
);
CREATE TABLE public.jobs (
    id bigint NOT NULL,
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    name character varying(256) NOT NULL COLLATE pg_catalog."C",
    type character varying(16) NOT NULL COLLATE pg_catalog."C",
    experiment_id bigint NOT NULL,
    status character varying(20) NOT NULL COLLATE pg_catalog."C",
    owner character varying(128) NOT NULL COLLATE pg_catalog."C",
    display_name character varying(256) NOT NULL COLLATE pg_catalog."C",
    spec json NOT NULL,
    spec_hash character varying(64) NOT NULL COLLATE pg_catalog."C",
    environment json,
    environment_hash character varying(64) NOT NULL COLLATE pg_catalog."C",
    compute character varying(64) NOT NULL COLLATE pg_catalog."C",
    node_count integer NOT NULL,
    processes_per_node integer NOT NULL,
    created_at bigint NOT NULL,
    started_at bigint,
    ended_at bigint,
    tags json NOT NULL,
    properties json NOT NULL,
    parent character varying(256) NOT NULL COLLATE pg_catalog."C",
    exit_code integer,
    error json,
    attempt integer NOT NULL,
    deleted boolean NOT NULL,
    archived boolean NOT NULL,
    description text NOT NULL COLLATE pg_catalog."C",
    retry_at bigint,
    avoided_slots json,
    turn integer DEFAULT 1 NOT NULL,
    limit_s double precision,
    gpus integer DEFAULT 0 NOT NULL,
    started_steady character varying(64) DEFAULT ''::character varying NOT NULL COLLATE pg_catalog."C",
    duration_s double precision
);
CREATE SEQUENCE public.jobs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.jobs_id_seq OWNED BY public.jobs.id;
CREATE TABLE public.logged_model_metrics (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    model_id character varying(64) NOT NULL COLLATE pg_catalog."C",
    run character varying(256) NOT NULL COLLATE pg_catalog."C",
    key character varying(250) NOT NULL COLLATE pg_catalog."C",
    dataset_name character varying(500) NOT NULL COLLATE pg_catalog."C",
    dataset_digest character varying(128) NOT NULL COLLATE pg_catalog."C",
    "timestamp" bigint NOT NULL,
    step bigint NOT NULL,
    value double precision
);
CREATE TABLE public.logged_models (
    id character varying(64) NOT NULL COLLATE pg_catalog."C",
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    experiment_id bigint NOT NULL,
    name character varying(500) NOT NULL COLLATE pg_catalog."C",
    run character varying(256) NOT NULL COLLATE pg_catalog."C",
    folder character varying(1024) NOT NULL COLLATE pg_catalog."C",
    type character varying(500) NOT NULL COLLATE pg_catalog."C",
    status character varying(32) NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    tags json NOT NULL,
    params json NOT NULL,
    deleted boolean NOT NULL
);
CREATE TABLE public.machines (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    compute character varying(64) NOT NULL COLLATE pg_catalog."C",
    name character varying(64) NOT NULL COLLATE pg_catalog."C",
    owner character varying(128) NOT NULL COLLATE pg_catalog."C",
    address character varying(64) NOT NULL COLLATE pg_catalog."C",
    facts json NOT NULL,
    draining boolean NOT NULL,
    joined_at bigint NOT NULL,
    seen_at bigint NOT NULL
);
CREATE TABLE public.messages (
    id character varying(36) NOT NULL COLLATE pg_catalog."C",
    job_id bigint NOT NULL,
    kind character varying(16) NOT NULL COLLATE pg_catalog."C",
    recipient json NOT NULL,
    created_at bigint NOT NULL,
    due_at bigint NOT NULL,
    tries integer NOT NULL
);
CREATE TABLE public.metric_blocks (
    job_id bigint NOT NULL,
    key character varying(250) NOT NULL COLLATE pg_catalog."C",
    number integer NOT NULL,
    count integer NOT NULL,
    min_timestamp bigint NOT NULL,
    max_timestamp bigint NOT NULL,
    min_step bigint NOT NULL,
    max_step bigint NOT NULL,
    min_value double precision,
    max_value double precision,
    data bytea NOT NULL
);
CREATE TABLE public.metric_rewinds (
    number integer NOT NULL,
    job_id bigint NOT NULL,
    key character varying(250) NOT NULL COLLATE pg_catalog."C",
    after bigint NOT NULL,
    until bigint NOT NULL,
    points bytea NOT NULL
);
CREATE SEQUENCE public.metric_rewinds_number_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.metric_rewinds_number_seq OWNED BY public.metric_rewinds.number;
CREATE TABLE public.metric_rows (
    number integer NOT NULL,
    job_id bigint NOT NULL,
    row_id character varying(64) NOT NULL COLLATE pg_catalog."C",
    key character varying(250) NOT NULL COLLATE pg_catalog."C",
    kind character varying(64) NOT NULL COLLATE pg_catalog."C",
    columns json NOT NULL,
    "values" json NOT NULL,
    step bigint,
    at bigint NOT NULL
);
CREATE SEQUENCE public.metric_rows_number_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.metric_rows_number_seq OWNED BY public.metric_rows.number;
CREATE TABLE public.metric_types (
    job_id bigint NOT NULL,
    key character varying(250) NOT NULL COLLATE pg_catalog."C",
    type character varying(16) NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.metrics (
    job_id bigint NOT NULL,
    key character varying(250) NOT NULL COLLATE pg_catalog."C",
    points bigint NOT NULL,
    blocks integer NOT NULL,
    latest_step bigint NOT NULL,
    latest_timestamp bigint NOT NULL,
    latest_value double precision,
    max_step bigint NOT NULL,
    max_timestamp bigint NOT NULL,
    tail bytea NOT NULL,
    by_run_log boolean,
    sampled boolean DEFAULT false NOT NULL
);
CREATE TABLE public.models (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    name character varying(256) NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL,
    type character varying(32) NOT NULL COLLATE pg_catalog."C",
    source text NOT NULL COLLATE pg_catalog."C",
    folder text NOT NULL COLLATE pg_catalog."C",
    job character varying(256) NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    owner character varying(128) NOT NULL COLLATE pg_catalog."C",
    description text NOT NULL COLLATE pg_catalog."C",
    tags json NOT NULL,
    properties json NOT NULL,
    files json NOT NULL,
    single boolean NOT NULL,
    archived boolean NOT NULL,
    updated_at bigint,
    run_link text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    model_id character varying(64) DEFAULT ''::character varying NOT NULL COLLATE pg_catalog."C",
    environment json,
    signature json
);
CREATE TABLE public.node_slots (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    compute character varying(64) NOT NULL COLLATE pg_catalog."C",
    number integer NOT NULL,
    attempt_id character varying(64) NOT NULL COLLATE pg_catalog."C",
    node integer NOT NULL
);
CREATE TABLE public.params (
    job_id bigint NOT NULL,
    key character varying(250) NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.people (
    name character varying(128) NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    removed_at bigint
);
CREATE TABLE public.pipeline_steps (
    job_id bigint NOT NULL,
    number integer NOT NULL,
    name character varying(512) NOT NULL COLLATE pg_catalog."C",
    document json NOT NULL,
    takes json NOT NULL,
    component character varying(512) NOT NULL COLLATE pg_catalog."C",
    is_deterministic boolean NOT NULL,
    outcome character varying(12) NOT NULL COLLATE pg_catalog."C",
    reason text NOT NULL COLLATE pg_catalog."C",
    ended_at bigint,
    child_id bigint,
    child_name character varying(256) NOT NULL COLLATE pg_catalog."C",
    key character varying(64) NOT NULL COLLATE pg_catalog."C",
    recipe json,
    reused_from character varying(256) NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.pipelines (
    job_id bigint NOT NULL,
    outputs json NOT NULL,
    ends_as character varying(20) NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.quota_requests (
    id character varying(32) NOT NULL COLLATE pg_catalog."C",
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    "user" character varying(128) NOT NULL COLLATE pg_catalog."C",
    name character varying(32) NOT NULL COLLATE pg_catalog."C",
    most bigint NOT NULL,
    reason text NOT NULL COLLATE pg_catalog."C",
    asked_at bigint NOT NULL,
    state character varying(16) NOT NULL COLLATE pg_catalog."C",
    answered_by character varying(128) NOT NULL COLLATE pg_catalog."C",
    answered_at bigint,
    answer text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.quotas (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    "user" character varying(128) NOT NULL COLLATE pg_catalog."C",
    name character varying(32) NOT NULL COLLATE pg_catalog."C",
    most bigint NOT NULL,
    set_by character varying(128) NOT NULL COLLATE pg_catalog."C",
    set_at bigint NOT NULL
);
CREATE TABLE public.registered_models (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    name character varying(256) NOT NULL COLLATE pg_catalog."C",
    description text NOT NULL COLLATE pg_catalog."C",
    tags json NOT NULL,
    aliases json NOT NULL,
    last_version integer NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL
);
CREATE TABLE public.release_schedules (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    environment character varying(256) NOT NULL COLLATE pg_catalog."C",
    owner character varying(128) NOT NULL COLLATE pg_catalog."C",
    every_s integer NOT NULL,
    request json NOT NULL,
    next_at bigint NOT NULL,
    created_at bigint NOT NULL,
    last_job character varying(256) NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.removed_jobs (
    job_id bigint NOT NULL,
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    name character varying(256) NOT NULL COLLATE pg_catalog."C",
    asked_at bigint NOT NULL,
    asked_by character varying(128) NOT NULL COLLATE pg_catalog."C",
    done_at bigint
);
CREATE TABLE public.roles (
    "user" character varying(128) NOT NULL COLLATE pg_catalog."C",
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    role character varying(32) NOT NULL COLLATE pg_catalog."C",
    granted_by character varying(128) NOT NULL COLLATE pg_catalog."C",
    granted_at bigint NOT NULL
);
CREATE TABLE public.run_assets (
    job_id bigint NOT NULL,
    number integer NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    type character varying(256) NOT NULL COLLATE pg_catalog."C",
    description text NOT NULL COLLATE pg_catalog."C",
    artifacts json NOT NULL,
    tags json NOT NULL,
    properties json NOT NULL,
    meta json NOT NULL,
    created_at bigint NOT NULL
);
CREATE TABLE public.run_datasets (
    job_id bigint NOT NULL,
    name character varying(500) NOT NULL COLLATE pg_catalog."C",
    digest character varying(128) NOT NULL COLLATE pg_catalog."C",
    place integer NOT NULL,
    context character varying(500) COLLATE pg_catalog."C",
    source_type text NOT NULL COLLATE pg_catalog."C",
    source text NOT NULL COLLATE pg_catalog."C",
    schema text NOT NULL COLLATE pg_catalog."C",
    profile text NOT NULL COLLATE pg_catalog."C",
    tags json NOT NULL
);
CREATE TABLE public.run_models (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    run character varying(256) NOT NULL COLLATE pg_catalog."C",
    kind character varying(8) NOT NULL COLLATE pg_catalog."C",
    model_id character varying(64) NOT NULL COLLATE pg_catalog."C",
    step bigint NOT NULL
);
CREATE TABLE public.run_requests (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    request character varying(64) NOT NULL COLLATE pg_catalog."C",
    job_id bigint NOT NULL
);
CREATE TABLE public.saved_datasets (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    id character varying(36) NOT NULL COLLATE pg_catalog."C",
    kind character varying(16) NOT NULL COLLATE pg_catalog."C",
    dataflow text NOT NULL COLLATE pg_catalog."C",
    properties json NOT NULL,
    created_at bigint NOT NULL
);
CREATE TABLE public.servers (
    id character varying(32) NOT NULL COLLATE pg_catalog."C",
    url text NOT NULL COLLATE pg_catalog."C",
    machine text NOT NULL COLLATE pg_catalog."C",
    pid integer NOT NULL,
    start_time bigint NOT NULL,
    started_at bigint NOT NULL,
    seen_at bigint NOT NULL
);
CREATE TABLE public.sign_in_codes (
    hash character varying(64) NOT NULL COLLATE pg_catalog."C",
    source character varying(64) NOT NULL COLLATE pg_catalog."C",
    expires_at bigint NOT NULL
);
CREATE TABLE public.stored_sizes (
    job_id bigint NOT NULL,
    size_bytes bigint NOT NULL,
    snapshot character varying(64) NOT NULL COLLATE pg_catalog."C",
    snapshot_bytes bigint NOT NULL
);
CREATE TABLE public.subjects (
    issuer character varying(255) NOT NULL COLLATE pg_catalog."C",
    subject character varying(255) NOT NULL COLLATE pg_catalog."C",
    "user" character varying(128) NOT NULL COLLATE pg_catalog."C",
    bound_at bigint NOT NULL
);
CREATE TABLE public.sweep_trials (
    job_id bigint NOT NULL,
    number integer NOT NULL,
    trial_id bigint NOT NULL,
    name character varying(256) NOT NULL COLLATE pg_catalog."C",
    parameters json NOT NULL,
    created_at bigint NOT NULL,
    outcome character varying(12) NOT NULL COLLATE pg_catalog."C",
    metric_values json NOT NULL,
    constraint_values json NOT NULL,
    intervals integer NOT NULL,
    reason text NOT NULL COLLATE pg_catalog."C",
    promotions integer NOT NULL,
    is_paused boolean NOT NULL
);
CREATE TABLE public.sweeps (
    job_id bigint NOT NULL,
    max_total_trials integer NOT NULL,
    begun_at bigint,
    is_exhausted boolean NOT NULL,
    seed bigint,
    earlier json NOT NULL,
    ends_as character varying(20) NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.tokens (
    hash character varying(64) NOT NULL COLLATE pg_catalog."C",
    kind character varying(16) NOT NULL COLLATE pg_catalog."C",
    "user" character varying(128) NOT NULL COLLATE pg_catalog."C",
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    subject character varying(256) NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    expires_at bigint,
    name character varying(64) DEFAULT ''::character varying NOT NULL COLLATE pg_catalog."C",
    last_used_at bigint,
    source character varying(64) COLLATE pg_catalog."C"
);
CREATE TABLE public.url_maps (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    prefix character varying(512) NOT NULL COLLATE pg_catalog."C",
    target text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL
);
CREATE TABLE public.workspace_connections (
    workspace character varying(64) NOT NULL COLLATE pg_catalog."C",
    name character varying(64) NOT NULL COLLATE pg_catalog."C",
    category character varying(64) NOT NULL COLLATE pg_catalog."C",
    target text NOT NULL COLLATE pg_catalog."C",
    auth_type character varying(32) NOT NULL COLLATE pg_catalog."C",
    credentials json NOT NULL,
    properties json NOT NULL,
    is_shared boolean NOT NULL,
    owner character varying(128) NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    changed_at bigint NOT NULL
);
CREATE TABLE public.workspaces (
    name character varying(64) NOT NULL COLLATE pg_catalog."C",
    subscription_id character varying(64) NOT NULL COLLATE pg_catalog."C",
    resource_group character varying(128) NOT NULL COLLATE pg_catalog."C",
    location character varying(64) NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    description text NOT NULL COLLATE pg_catalog."C",
    retention_days integer DEFAULT 0 NOT NULL,
    rehearse_on_cpu boolean DEFAULT false NOT NULL,
    allow_substitutes boolean,
    max_processes integer DEFAULT 0 NOT NULL,
    disk_quota_mb integer DEFAULT 0 NOT NULL,
    network character varying(16) DEFAULT 'open'::character varying NOT NULL COLLATE pg_catalog."C",
    auto_compute boolean DEFAULT false NOT NULL,
    display_name character varying(256) DEFAULT ''::character varying NOT NULL COLLATE pg_catalog."C",
    tags json DEFAULT '{}'::json NOT NULL,
    azure_keys json DEFAULT '{}'::json NOT NULL,
    notifications json DEFAULT '{}'::json NOT NULL
);
ALTER TABLE ONLY public.advisories ALTER COLUMN number SET DEFAULT nextval('public.advisories_number_seq'::regclass);
ALTER TABLE ONLY public.cluster_counts ALTER COLUMN id SET DEFAULT nextval('public.cluster_counts_id_seq'::regclass);
ALTER TABLE ONLY public.components ALTER COLUMN number SET DEFAULT nextval('public.components_number_seq'::regclass);
ALTER TABLE ONLY public.data_assets ALTER COLUMN number SET DEFAULT nextval('public.data_assets_number_seq'::regclass);
ALTER TABLE ONLY public.environment_assets ALTER COLUMN number SET DEFAULT nextval('public.environment_assets_number_seq'::regclass);
ALTER TABLE ONLY public.environment_releases ALTER COLUMN number SET DEFAULT nextval('public.environment_releases_number_seq'::regclass);
ALTER TABLE ONLY public.experiments ALTER COLUMN id SET DEFAULT nextval('public.experiments_id_seq'::regclass);
ALTER TABLE ONLY public.job_renames ALTER COLUMN id SET DEFAULT nextval('public.job_renames_id_seq'::regclass);
ALTER TABLE ONLY public.jobs ALTER COLUMN id SET DEFAULT nextval('public.jobs_id_seq'::regclass);
ALTER TABLE ONLY public.metric_rewinds ALTER COLUMN number SET DEFAULT nextval('public.metric_rewinds_number_seq'::regclass);
ALTER TABLE ONLY public.metric_rows ALTER COLUMN number SET DEFAULT nextval('public.metric_rows_number_seq'::regclass);
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.adopted_jobs
    ADD CONSTRAINT pk_adopted_jobs PRIMARY KEY (job_id, child_id);
ALTER TABLE ONLY public.advisories
    ADD CONSTRAINT pk_advisories PRIMARY KEY (number);
ALTER TABLE ONLY public.advisory_sets
    ADD CONSTRAINT pk_advisory_sets PRIMARY KEY (workspace);
ALTER TABLE ONLY public.attempt_nodes
    ADD CONSTRAINT pk_attempt_nodes PRIMARY KEY (attempt_id, node);
ALTER TABLE ONLY public.attempts
    ADD CONSTRAINT pk_attempts PRIMARY KEY (id);
ALTER TABLE ONLY public.batch_deployments
    ADD CONSTRAINT pk_batch_deployments PRIMARY KEY (workspace, endpoint, name);
ALTER TABLE ONLY public.batch_endpoints
    ADD CONSTRAINT pk_batch_endpoints PRIMARY KEY (workspace, name);
ALTER TABLE ONLY public.batch_jobs
    ADD CONSTRAINT pk_batch_jobs PRIMARY KEY (workspace, job);
ALTER TABLE ONLY public.checksums
    ADD CONSTRAINT pk_checksums PRIMARY KEY (workspace, datastore, path);
ALTER TABLE ONLY public.cluster_counts
    ADD CONSTRAINT pk_cluster_counts PRIMARY KEY (id);
ALTER TABLE ONLY public.cluster_nodes
    ADD CONSTRAINT pk_cluster_nodes PRIMARY KEY (workspace, compute, number);
ALTER TABLE ONLY public.cluster_usage
    ADD CONSTRAINT pk_cluster_usage PRIMARY KEY (workspace, compute, day);
ALTER TABLE ONLY public.codes
    ADD CONSTRAINT pk_codes PRIMARY KEY (workspace, name, version);
ALTER TABLE ONLY public.components
    ADD CONSTRAINT pk_components PRIMARY KEY (number);
ALTER TABLE ONLY public.computes
    ADD CONSTRAINT pk_computes PRIMARY KEY (workspace, name);
ALTER TABLE ONLY public.data_assets
    ADD CONSTRAINT pk_data_assets PRIMARY KEY (number);
ALTER TABLE ONLY public.datastores
    ADD CONSTRAINT pk_datastores PRIMARY KEY (workspace, name);
ALTER TABLE ONLY public.deleted_versions
    ADD CONSTRAINT pk_deleted_versions PRIMARY KEY (workspace, kind, name, version);
ALTER TABLE ONLY public.deployment_instances
    ADD CONSTRAINT pk_deployment_instances PRIMARY KEY (workspace, endpoint, deployment, revision, number);
ALTER TABLE ONLY public.deployments
    ADD CONSTRAINT pk_deployments PRIMARY KEY (workspace, endpoint, name);
ALTER TABLE ONLY public.endpoint_keys
    ADD CONSTRAINT pk_endpoint_keys PRIMARY KEY (workspace, endpoint);
ALTER TABLE ONLY public.endpoints
    ADD CONSTRAINT pk_endpoints PRIMARY KEY (workspace, name);
ALTER TABLE ONLY public.environment_assets
    ADD CONSTRAINT pk_environment_assets PRIMARY KEY (number);
ALTER TABLE ONLY public.environment_builds
    ADD CONSTRAINT pk_environment_builds PRIMARY KEY (hash);
ALTER TABLE ONLY public.environment_releases
    ADD CONSTRAINT pk_environment_releases PRIMARY KEY (number);
ALTER TABLE ONLY public.events
    ADD CONSTRAINT pk_events PRIMARY KEY (job_id, seq);
ALTER TABLE ONLY public.experiments
    ADD CONSTRAINT pk_experiments PRIMARY KEY (id);
ALTER TABLE ONLY public.file_properties
    ADD CONSTRAINT pk_file_properties PRIMARY KEY (workspace, datastore, path);
ALTER TABLE ONLY public.history_cursors
    ADD CONSTRAINT pk_history_cursors PRIMARY KEY (attempt_id, node);
ALTER TABLE ONLY public.installation
    ADD CONSTRAINT pk_installation PRIMARY KEY (id);
ALTER TABLE ONLY public.instances
    ADD CONSTRAINT pk_instances PRIMARY KEY (workspace, name);
ALTER TABLE ONLY public.job_letters
    ADD CONSTRAINT pk_job_letters PRIMARY KEY (batch, letters);
ALTER TABLE ONLY public.job_renames
    ADD CONSTRAINT pk_job_renames PRIMARY KEY (id);
ALTER TABLE ONLY public.job_tags
    ADD CONSTRAINT pk_job_tags PRIMARY KEY (key, value, job_id);
ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT pk_jobs PRIMARY KEY (id);
ALTER TABLE ONLY public.logged_model_metrics
    ADD CONSTRAINT pk_logged_model_metrics PRIMARY KEY (workspace, model_id, run, key, dataset_name, dataset_digest);
ALTER TABLE ONLY public.logged_models
    ADD CONSTRAINT pk_logged_models PRIMARY KEY (id);
ALTER TABLE ONLY public.machines
    ADD CONSTRAINT pk_machines PRIMARY KEY (workspace, compute, name);
ALTER TABLE ONLY public.messages
    ADD CONSTRAINT pk_messages PRIMARY KEY (id);
ALTER TABLE ONLY public.metric_blocks
    ADD CONSTRAINT pk_metric_blocks PRIMARY KEY (job_id, key, number);
ALTER TABLE ONLY public.metric_rewinds
    ADD CONSTRAINT pk_metric_rewinds PRIMARY KEY (number);
ALTER TABLE ONLY public.metric_rows
    ADD CONSTRAINT pk_metric_rows PRIMARY KEY (number);
ALTER TABLE ONLY public.metric_types
    ADD CONSTRAINT pk_metric_types PRIMARY KEY (job_id, key);
ALTER TABLE ONLY public.metrics
    ADD CONSTRAINT pk_metrics PRIMARY KEY (job_id, key);
ALTER TABLE ONLY public.models
    ADD CONSTRAINT pk_models PRIMARY KEY (workspace, name, version);
ALTER TABLE ONLY public.node_slots
    ADD CONSTRAINT pk_node_slots PRIMARY KEY (workspace, compute, number);
ALTER TABLE ONLY public.params
    ADD CONSTRAINT pk_params PRIMARY KEY (job_id, key);
ALTER TABLE ONLY public.people
    ADD CONSTRAINT pk_people PRIMARY KEY (name);
ALTER TABLE ONLY public.pipeline_steps
    ADD CONSTRAINT pk_pipeline_steps PRIMARY KEY (job_id, number);
ALTER TABLE ONLY public.pipelines
    ADD CONSTRAINT pk_pipelines PRIMARY KEY (job_id);
ALTER TABLE ONLY public.quota_requests
    ADD CONSTRAINT pk_quota_requests PRIMARY KEY (id);
ALTER TABLE ONLY public.quotas
    ADD CONSTRAINT pk_quotas PRIMARY KEY (workspace, "user", name);
ALTER TABLE ONLY public.registered_models
    ADD CONSTRAINT pk_registered_models PRIMARY KEY (workspace, name);
ALTER TABLE ONLY public.release_schedules
    ADD CONSTRAINT pk_release_schedules PRIMARY KEY (workspace, environment);
ALTER TABLE ONLY public.removed_jobs
    ADD CONSTRAINT pk_removed_jobs PRIMARY KEY (job_id);
ALTER TABLE ONLY public.roles
    ADD CONSTRAINT pk_roles PRIMARY KEY ("user", workspace);
ALTER TABLE ONLY public.run_assets
    ADD CONSTRAINT pk_run_assets PRIMARY KEY (job_id, number);
ALTER TABLE ONLY public.run_datasets
    ADD CONSTRAINT pk_run_datasets PRIMARY KEY (job_id, name, digest);
ALTER TABLE ONLY public.run_models
    ADD CONSTRAINT pk_run_models PRIMARY KEY (workspace, run, kind, model_id, step);
ALTER TABLE ONLY public.run_requests
    ADD CONSTRAINT pk_run_requests PRIMARY KEY (workspace, request);
ALTER TABLE ONLY public.saved_datasets
    ADD CONSTRAINT pk_saved_datasets PRIMARY KEY (workspace, id);
ALTER TABLE ONLY public.servers
    ADD CONSTRAINT pk_servers PRIMARY KEY (id);
ALTER TABLE ONLY public.sign_in_codes
    ADD CONSTRAINT pk_sign_in_codes PRIMARY KEY (hash);
ALTER TABLE ONLY public.stored_sizes
    ADD CONSTRAINT pk_stored_sizes PRIMARY KEY (job_id);
ALTER TABLE ONLY public.subjects
    ADD CONSTRAINT pk_subjects PRIMARY KEY (issuer, subject);
ALTER TABLE ONLY public.sweep_trials
    ADD CONSTRAINT pk_sweep_trials PRIMARY KEY (job_id, number);
ALTER TABLE ONLY public.sweeps
    ADD CONSTRAINT pk_sweeps PRIMARY KEY (job_id);
ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT pk_tokens PRIMARY KEY (hash);
ALTER TABLE ONLY public.url_maps
    ADD CONSTRAINT pk_url_maps PRIMARY KEY (workspace, prefix);
ALTER TABLE ONLY public.workspace_connections
    ADD CONSTRAINT pk_workspace_connections PRIMARY KEY (workspace, name);
ALTER TABLE ONLY public.workspaces
    ADD CONSTRAINT pk_workspaces PRIMARY KEY (name);
ALTER TABLE ONLY public.attempts
    ADD CONSTRAINT uq_attempts_job_id_number UNIQUE (job_id, number);
ALTER TABLE ONLY public.components
    ADD CONSTRAINT uq_components_workspace_name_version UNIQUE (workspace, name, version);
ALTER TABLE ONLY public.environment_assets
    ADD CONSTRAINT uq_environment_assets_workspace_name_version UNIQUE (workspace, name, version);
ALTER TABLE ONLY public.experiments
    ADD CONSTRAINT uq_experiments_workspace_name UNIQUE (workspace, name);
ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT uq_jobs_workspace_name UNIQUE (workspace, name);
ALTER TABLE ONLY public.logged_models
    ADD CONSTRAINT uq_logged_models_workspace_folder UNIQUE (workspace, folder);
ALTER TABLE ONLY public.metric_rows
    ADD CONSTRAINT uq_metric_rows_job_id_row_id UNIQUE (job_id, row_id);
ALTER TABLE ONLY public.node_slots
    ADD CONSTRAINT uq_node_slots_attempt_id_node UNIQUE (attempt_id, node);
ALTER TABLE ONLY public.subjects
    ADD CONSTRAINT uq_subjects_issuer_user UNIQUE (issuer, "user");
CREATE INDEX ix_advisories_package ON public.advisories USING btree (workspace, set_id, package);
CREATE INDEX ix_attempts_clean_ended_at ON public.attempts USING btree (clean, ended_at);
CREATE INDEX ix_attempts_ended_at ON public.attempts USING btree (ended_at);
CREATE INDEX ix_attempts_job_id ON public.attempts USING btree (job_id);
CREATE INDEX ix_batch_jobs_workspace_endpoint ON public.batch_jobs USING btree (workspace, endpoint, created_at);
CREATE INDEX ix_cluster_counts_workspace_compute_id ON public.cluster_counts USING btree (workspace, compute, id);
CREATE INDEX ix_codes_hash ON public.codes USING btree (workspace, hash);
CREATE INDEX ix_data_assets_job ON public.data_assets USING btree (job);
CREATE INDEX ix_environment_releases_environment ON public.environment_releases USING btree (workspace, environment, number);
CREATE INDEX ix_environment_releases_job_id ON public.environment_releases USING btree (job_id);
CREATE INDEX ix_jobs_by_name ON public.jobs USING btree (experiment_id, deleted, (
CASE
    WHEN ((display_name)::text = ''::text) THEN name
    ELSE display_name
END));
CREATE INDEX ix_jobs_created_at_id ON public.jobs USING btree (created_at, id);
CREATE INDEX ix_jobs_experiment_id ON public.jobs USING btree (experiment_id);
CREATE INDEX ix_jobs_newest ON public.jobs USING btree (experiment_id, deleted, COALESCE(started_at, created_at) DESC, name);
CREATE INDEX ix_jobs_owner_id ON public.jobs USING btree (owner, id);
CREATE INDEX ix_jobs_parent_id ON public.jobs USING btree (parent, id) WHERE ((parent)::text <> ''::text);
CREATE INDEX ix_jobs_preparing ON public.jobs USING btree (status, environment_hash, id);
CREATE INDEX ix_jobs_queue ON public.jobs USING btree (status, workspace, compute, turn, id, node_count);
CREATE INDEX ix_jobs_run_search ON public.jobs USING btree (experiment_id, deleted, started_at, created_at, name, status, ended_at);
CREATE INDEX ix_jobs_status_id ON public.jobs USING btree (status, id);
CREATE INDEX ix_jobs_workspace_id ON public.jobs USING btree (workspace, id);
CREATE INDEX ix_logged_models_experiment_id ON public.logged_models USING btree (experiment_id);
CREATE INDEX ix_logged_models_workspace_run ON public.logged_models USING btree (workspace, run);
CREATE INDEX ix_messages_job_id ON public.messages USING btree (job_id);
CREATE INDEX ix_messages_kind_due_at ON public.messages USING btree (kind, due_at);
CREATE INDEX ix_metric_rewinds_job_id ON public.metric_rewinds USING btree (job_id);
CREATE INDEX ix_metric_rows_job_id ON public.metric_rows USING btree (job_id);
CREATE INDEX ix_metrics_best ON public.metrics USING btree (key, latest_value, job_id);
CREATE INDEX ix_models_job ON public.models USING btree (job);
CREATE INDEX ix_node_slots_attempt_id ON public.node_slots USING btree (attempt_id);
CREATE INDEX ix_params_numbers ON public.params USING btree (key, (
CASE
    WHEN (value ~ '^-?[0-9]{1,40}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,2})?$'::text) THEN (value)::double precision
    ELSE NULL::double precision
END), job_id);
CREATE INDEX ix_params_values ON public.params USING btree (key, substr(value, 1, 64), job_id);
CREATE INDEX ix_pipeline_steps_child_id ON public.pipeline_steps USING btree (child_id);
CREATE INDEX ix_pipeline_steps_key ON public.pipeline_steps USING btree (key);
CREATE INDEX ix_quota_requests_workspace ON public.quota_requests USING btree (workspace);
CREATE INDEX ix_removed_jobs_done_at ON public.removed_jobs USING btree (done_at);
CREATE INDEX ix_run_datasets_name_job_id ON public.run_datasets USING btree (name, job_id);
CREATE INDEX ix_sweep_trials_trial_id ON public.sweep_trials USING btree (trial_id);
CREATE INDEX ix_tokens_source ON public.tokens USING btree (source);
CREATE INDEX ix_tokens_subject ON public.tokens USING btree (subject);
ALTER TABLE ONLY public.adopted_jobs
    ADD CONSTRAINT fk_adopted_jobs_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id);
ALTER TABLE ONLY public.attempt_nodes
    ADD CONSTRAINT fk_attempt_nodes_attempt_id FOREIGN KEY (attempt_id) REFERENCES public.attempts(id);
ALTER TABLE ONLY public.attempts
    ADD CONSTRAINT fk_attempts_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id);
ALTER TABLE ONLY public.events
    ADD CONSTRAINT fk_events_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id);
ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT fk_jobs_experiment_id FOREIGN KEY (experiment_id) REFERENCES public.experiments(id);
ALTER TABLE ONLY public.messages
    ADD CONSTRAINT fk_messages_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id);
ALTER TABLE ONLY public.pipeline_steps
    ADD CONSTRAINT fk_pipeline_steps_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id);
ALTER TABLE ONLY public.pipelines
    ADD CONSTRAINT fk_pipelines_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id);
ALTER TABLE ONLY public.sweep_trials
    ADD CONSTRAINT fk_sweep_trials_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id);
ALTER TABLE ONLY public.sweeps
    ADD CONSTRAINT fk_sweeps_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id);
