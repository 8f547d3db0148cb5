"""Which operation of SDK v2 does what one of SDK v1 does.

Owns: the pairs that the page shows in one row.
Leaves: what became of either to the page.
Always: both operations of a pair are in the same section, and both are tried.
"""

EQUIVALENTS = {
    "Workspaces": {
        "`Workspace.get`, `Workspace(...)`, `write_config`": "`workspaces.get`",
        "`Workspace.list`": "`workspaces.list`",
        "`Workspace.get` of one that is not there": "`workspaces.get` of one that is not there",
    },
    "Compute": {
        "`AmlCompute.provisioning_configuration`, `ComputeTarget.create`, wait": (
            "`compute.begin_create_or_update`: AmlCompute"
        ),
        "`ComputeTarget.list`, `ws.compute_targets`, `list_nodes`": (
            "`compute.get`, `list`, `begin_update`, `list_nodes`"
        ),
        "`update`, `delete`": "`compute.begin_delete`",
        "`AmlCompute.supported_vmsizes`": "`compute.list_sizes`, `list_usage`",
        "`ComputeTarget.create`: a size that is not there": (
            "`compute.begin_create_or_update`: unknown size"
        ),
        "`ComputeInstance`: `create`, `stop`, `get_status`, `delete`": (
            "`ComputeInstance`: create, `begin_stop`, `begin_start`, `begin_restart`"
        ),
        "`AksCompute`": "`compute.begin_attach`: Kubernetes, attached machines",
        "`ComputeTarget.attach`: Databricks, virtual machines": (
            "`compute.begin_attach`: Kubernetes, attached machines"
        ),
    },
    "Jobs": {
        "`submit`: a script, integers and `$NAME` in its arguments": (
            "`jobs.create_or_update`: command with code, inputs and outputs"
        ),
        "`wait_for_completion(show_output=True)`": "`jobs.stream`",
        "`submit` of what was submitted before: its snapshot is not sent again": (
            "code that was uploaded before is not uploaded again"
        ),
        "`submit`: `PyTorchConfiguration`, 4 processes on 2 nodes": (
            "`jobs.create_or_update`: distribution PyTorch"
        ),
        "`submit`: `PyTorchConfiguration`, a command on each of 2 nodes": (
            "`jobs.create_or_update`: distribution PyTorch"
        ),
        "`submit`: `MpiConfiguration`": "`jobs.create_or_update`: distribution Mpi",
        "`submit`: `max_run_duration_seconds`": (
            "`jobs.create_or_update`: limits, shm_size, properties"
        ),
        "`submit`: a run that fails": "`jobs.create_or_update`: a job that fails",
        "a run that failed: `ActivityFailedException`": "`jobs.stream` of a job that failed",
        "`submit`: a compute that is not there": (
            "`jobs.create_or_update`: a compute that is not there"
        ),
        "`submit`: compute target `local`": "`jobs.create_or_update`: compute `local`",
        "`cancel`": "`jobs.cancel`",
        "`cancel`: the run is canceled": "a canceled job is Canceled",
        "`get_details`, `get_status`, `ws.get_run`": "`jobs.get`",
        "`Run.get` of one that is not there": "`jobs.get` of one that is not there",
        "`tag`, `set_tags`, `remove_tags`, `get_properties`, `display_name`": (
            "`jobs.create_or_update` of a job that is there: tags and display name"
        ),
        "`get_file_names`, `download_file`, `download_files`": (
            "`jobs.download` of logs and default outputs"
        ),
        "`Experiment.get_runs`, `ws.experiments`: newest first": "`jobs.list`, all pages",
        "`PyTorchConfiguration`: the ranks of 4 processes on 2 nodes": (
            "every distribution ends well"
        ),
    },
    "Environments": {
        "`from_conda_specification`, `docker.base_image`": (
            "`environments.create_or_update`: image and conda file"
        ),
        "`clone`, `register`, `Environment.get` of a version": (
            "`environments.create_or_update` again: the same is the same version"
        ),
        "`Environment.get` by a published name, `save_to_directory`, `load`": (
            "`environments.get`: curated"
        ),
        "`Environment.list`, `ws.environments`": "`environments.list`, `archive`, `restore`",
        "`register` with a reserved prefix": "`environments.create_or_update`: a reserved name",
        "`Environment.get` of one that is not there": (
            "`environments.get` of one that is not there"
        ),
    },
    "Data": {
        "`Dataset.File.upload_directory`, `to_path`": (
            "`data.create_or_update`: local folder, file and MLTable"
        ),
        "`Datastore.upload`, `upload_files`, `download`, `Datastore.get`": (
            "`data.create_or_update`: datastore URIs and URLs"
        ),
        "`register`, `get_by_name`, `ws.datasets`": "`data.get`, `list`, `archive`, `restore`",
        "`add_tags`, `update`, `unregister_all_versions`, `register` again": (
            "`data.create_or_update` again: words change, places don't"
        ),
        "`from_files` of a path that is gone": "`data.create_or_update`: nothing at the path yet",
    },
    "Models": {
        "`Model.register` from a folder and from a file, `download`": (
            "`models.create_or_update`: local folder, file and MLflow model"
        ),
        "`run.register_model`, `Model.list` of a run, lineage, `download`": (
            "`models.download`: folder and file"
        ),
        "`model.update`, `add_properties`, `remove_tags`, filters of `Model.list`": (
            "`models.create_or_update` again: tags, description, stage"
        ),
        "`Model.list`, `Model(ws, name)`, `add_tags`, `ws.models`, `delete`": (
            "`models.get`, `list`, `archive`, `restore`"
        ),
        "`Model` of a name that is not there": "`models.get` of one that is not there",
    },
    "Sweeps": {
        "`Experiment.submit`: HyperDriveConfig": "`command(...).sweep(...)`, 6 trials with bandit",
        "every sampling and policy, in turn": (
            "`load_job` of sweep files: every sampling and policy"
        ),
        "`wait_for_completion(show_output=True)`: 4 runs": "`jobs.stream` of a sweep",
        "`get_best_run_by_primary_metric`": "`jobs.get` of a sweep: fields, best child",
        "`get_children_sorted_by_primary_metric`, `get_hyperparameters`, `get_metrics`": (
            "`jobs.list`: sweeps, and children by `parent_job_name`"
        ),
        "`BanditPolicy`: children that it cancels": (
            "early termination: children that the bandit policy cancels"
        ),
        "`cancel` of a HyperDriveRun": "`jobs.cancel` of a sweep",
        "`Experiment.submit`: a HyperDriveConfig that can't be searched": (
            "`jobs.create_or_update`: a space that the command does not use"
        ),
    },
    "Endpoints": {
        "`Webservice(ws, name)`, `Webservice.list`, `ws.webservices`, `ws.images`": (
            "`online_endpoints.get`, `list`; `online_deployments.get`, `list`"
        ),
        "`Model.deploy`: `InferenceConfig`, `AciWebservice`, `wait_for_deployment`": (
            "`online_deployments.begin_create_or_update`: `load_online_deployment`, inline model"
        ),
        "`service.run`; `scoring_uri` with a key, and with a wrong one": (
            "`online_endpoints.invoke`; `scoring_uri` and `openapi_uri` with a key"
        ),
        "`get_keys`, `regen_key`": "`online_endpoints.get_keys`, `begin_regenerate_keys`",
        "`get_logs`": "`online_deployments.get_logs`",
        "`Webservice` of a name that is not there": (
            "`online_endpoints.get` of one that is not there"
        ),
        "`service.update`: `inference_config`, `tags`; `add_properties`": (
            "`online_deployments.begin_create_or_update` of what was read: settings, "
            "`instance_count`"
        ),
        "`AksWebservice`: `token_auth_enabled`, `get_access_token`, `overwrite`": (
            "`auth_mode='aml_token'`: `get_keys`, `invoke`"
        ),
        "`wait_for_deployment` of a script whose `init` fails": "a script whose `init` fails",
        "`service.delete`": "`online_deployments.begin_delete`, `online_endpoints.begin_delete`",
    },
    "Errors": {
        "a token whose time is over": "a token whose time is over",
        "a workspace of another resource group": "the workspace of another resource group",
    },
}
"""By section: the call of SDK v1 and that of SDK v2."""
