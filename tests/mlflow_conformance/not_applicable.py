"""Which of MLflow's own tests say nothing about a tracking server's protocol.

A pattern is matched (fnmatch) against a test's node id; the first that fits gives the reason.
Narrow on purpose: what is here is excluded by what torchyard serves, or tests MLflow's own
server process, command line or store and not the protocol.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

_TRACES = "traces are not served"
_GATEWAY = "the gateway is not served"
_EVALUATION = "evaluation is not served"
_GRAPHQL = "GraphQL is between MLflow's own page and server"
_OWN_ROOT = "the server is started with a folder for artifacts, which the test then reads"
_OWN_SERVER = "starts MLflow's own server with a setting of it"
_LOCAL = (
    "expects what a local store refuses; over HTTP MLflow's client or server words it otherwise"
)
_NUMBERS = "takes it that a fresh store numbers its experiments from 1; many share our numbers"
_OWN_STORE = "calls MLflow's own store in its own process"
_EMPTY_FOLDER = "looks for an empty folder, which MLflow's client does not send over HTTP"

TABLE: tuple[tuple[str, str], ...] = (
    ("*test_rest_tracking.py::*_trace*", _TRACES),
    ("*test_rest_tracking.py::test_assessments_*", _TRACES),
    ("*test_rest_tracking.py::test_rest_store_logs_spans_*", _TRACES),
    ("*test_rest_tracking.py::*_issue*", _TRACES),
    ("*test_rest_tracking.py::*promptlab*", _GATEWAY),
    ("*test_rest_tracking.py::test_gateway_*", _GATEWAY),
    ("*test_rest_tracking.py::*_secret*", _GATEWAY),
    ("*test_rest_tracking.py::*_endpoint*", _GATEWAY),
    ("*test_rest_tracking.py::*model_definition*", _GATEWAY),
    ("*test_rest_tracking.py::test_list_models*", _GATEWAY),
    ("*test_rest_tracking.py::test_list_providers*", _GATEWAY),
    ("*test_rest_tracking.py::test_get_provider_config*", _GATEWAY),
    ("*test_rest_tracking.py::*graphql*", _GRAPHQL),
    ("*test_rest_tracking.py::*evaluation_dataset*", _EVALUATION),
    ("*test_rest_tracking.py::*_dataset_to_experiments_*", _EVALUATION),
    ("*test_rest_tracking.py::*_dataset_from_experiments_*", _EVALUATION),
    ("*test_rest_tracking.py::*_experiments_rest_tracking*", _EVALUATION),
    ("*test_rest_tracking.py::*_experiments_at_once_rest_tracking*", _EVALUATION),
    ("*test_rest_tracking.py::test_dataset_experiment_association_*", _EVALUATION),
    ("*test_rest_tracking.py::test_scorer_*", _EVALUATION),
    ("*test_rest_tracking.py::test_online_scoring_*", _EVALUATION),
    ("*test_rest_tracking.py::test_artifacts[[]*", _OWN_ROOT),
    ("*test_rest_tracking.py::test_logging_model_with_local_artifact_uri*", _OWN_ROOT),
    ("*test_rest_tracking.py::test_create_model_version_with_path_source*", _OWN_ROOT),
    ("*test_rest_tracking.py::test_create_model_version_with_file_uri*", _OWN_ROOT),
    ("*test_rest_tracking.py::test_create_model_version_with_validation_regex*", _OWN_SERVER),
    ("*test_mlflow_artifacts.py::test_mlflow_artifacts_rest_apis*", _OWN_ROOT),
    ("*test_mlflow_artifacts.py::test_log_artifact", _OWN_ROOT),
    ("*test_mlflow_artifacts.py::*_model_version_artifact_api_proxied_*", _OWN_ROOT),
    ("*test_mlflow_artifacts.py::test_mlflow_artifacts_example*", "builds MLflow's Docker images"),
    ("*test_tracking.py::test_create_experiment", _LOCAL),
    ("*test_tracking.py::test_create_experiments_with_bad_name*", _LOCAL),
    ("*test_tracking.py::test_log_metric_validation", _LOCAL),
    ("*test_tracking.py::test_log_batch_validates_entity_names_and_values", _LOCAL),
    ("*test_tracking.py::test_search_runs_multiple_experiments", _NUMBERS),
    ("*test_fluent.py::test_search_experiments", _NUMBERS),
    ("*test_fluent.py::test_subprocess_inherit_tracking_uri", "asks for the path of its database"),
    ("*test_fluent.py::test_log_metric_async_throws", _LOCAL),
    ("*test_fluent.py::test_registry_uri_from_spark_conf", "needs Spark"),
    ("*test_fluent.py::test_set_active_model_link_traces", _TRACES),
    ("*test_fluent.py::test_clear_active_model", _TRACES),
    ("*test_tracking.py::test_log_artifact_with_dirs", _EMPTY_FOLDER),
    ("*test_tracking.py::*_appends_to_uri_path_component_correctly*#fragment*", _LOCAL),
    ("*test_client.py::*trace*", _TRACES),
    ("*test_client.py::*tracing*", _TRACES),
    ("*test_client.py::*span*", _TRACES),
    ("*test_client.py::*assessment*", _TRACES),
    ("*test_client.py::*_issue*", _TRACES),
    ("*test_client.py::*prompt*", "prompts are not served"),
    ("*test_model_registry_fluent.py::test_register_model_with_2_x_model", _OWN_STORE),
    ("*::test_get_metric_history_bulk_calls_optimized_impl_when_expected*", _OWN_STORE),
)


def reason(test: str) -> str:
    """Why `test` is not applicable; empty when it is."""
    return next((why for pattern, why in TABLE if fnmatchcase(test, pattern)), "")
