"""What Azure ML's schemas call a string.

Owns: where in a document of any kind a value is a string, whatever it looks like in YAML.
Leaves: reading YAML to yaml_files.py.
Always: what is a string stays as it is written: `1.10`, `007`, `1e3`, `2024-01-02`, `yes`.
"""

from __future__ import annotations

At = tuple[str | int, ...]

# Mappings from a user's names to strings.
_STRINGS_BY_NAME = (
    "tags", "environment_variables", "properties", "variables", "credentials", "metadata",
)  # fmt: skip
# Mappings from a user's names to something else: none of these names is a key.
_NAMED = (
    "inputs", "outputs", "search_space", "services", "traffic", "mirror_traffic", "collections",
    "jobs",
)  # fmt: skip
# Ours, and values of any type.
_UNTYPED = ("torchyard", "search_space")
_OWN = "torchyard."
KEYS = frozenset(
    """
    $schema type name version display_name experiment_name description command code environment
    compute parent_job_name path mode trial component sampling_algorithm goal primary_metric rule
    communication_backend instance_type shm_size docker_args locations log_dir nodes
    ssh_public_keys job_tier priority email_on emails client_id object_id msi_resource_id
    path_on_compute additional_includes
    image conda_file pip_requirements dockerfile_path os_type channels dependencies pip prefix
    python endpoint_name deployment_name job_name auth_mode model scoring_script data rolling_rate
    egress_public_network_access public_network_access kind output_action output_file_name
    logging_level model_mount_path
    stage datastore folder account_name container_name file_share_name filesystem protocol endpoint
    bucket url region host username private_key_file
    target size tier location time_zone start_time expression resource_group friendly_name
    """.split()
)
"""Of jobs, sweeps and components; of environments and conda files; of endpoints, deployments and
invocations; of assets, datastores, connections, computes and workspaces."""
# Of a mapping whose `type` is `string`.
OF_TYPE_STRING = ("value", "default", "enum")


def is_string(at: At, type_around: str = "") -> bool:
    """
    Args:
        at: where a value stands that is neither a mapping nor a list.
        type_around: the `type` of the mapping around it.
    """
    while at and isinstance(at[-1], int):
        at = at[:-1]
    if not at or any(step in _UNTYPED for step in at[:-1]):
        return False
    around = at[-2] if len(at) > 1 else ""
    if around in _STRINGS_BY_NAME:
        # Ours may be numbers and flags.
        return not (around == "properties" and str(at[-1]).startswith(_OWN))
    if around in _NAMED:
        return False
    return at[-1] in KEYS or (type_around.lower() == "string" and at[-1] in OF_TYPE_STRING)
