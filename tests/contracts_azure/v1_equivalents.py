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
        "compute instances": "compute instances",
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
        "`from_files` of a path that is gone": "`data.create_or_update`: nothing at the path",
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
    "Sweeps": {"`Experiment.submit`: HyperDriveConfig": "`jobs.create_or_update`: sweep"},
    "Endpoints": {
        "`ws.webservices`, `ws.images`: there are none": "`online_endpoints.list`",
        "`Model.deploy`: a web service": "`online_endpoints.begin_create_or_update`",
    },
    "Connections": {"`ws.linked_services`": "`connections.list`"},
    "Errors": {
        "a token whose time is over": "a token whose time is over",
        "a workspace of another resource group": "the workspace of another resource group",
    },
}
"""By section: the call of SDK v1 and that of SDK v2."""
