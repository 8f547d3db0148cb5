"""Each rank prints what it was told, and all of them sum their ranks."""

import os

from mpi4py import MPI

SHOWN = (
    "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK "
    "OMPI_COMM_WORLD_LOCAL_SIZE "
    "MASTER_ADDR MASTER_PORT AZ_BATCH_MASTER_NODE AZ_BATCHAI_MPI_MASTER_NODE "
    "AZ_BATCHAI_TASK_INDEX AZ_BATCH_HOST_LIST AZUREML_CR_NODE_RANK AZUREML_PROCESS_NAME "
    "AZUREML_RUN_ID AZUREML_COMMUNICATOR MLFLOW_RUN_ID MLFLOW_TRACKING_URI"
).split()

world = MPI.COMM_WORLD
for name in SHOWN:
    print(f"{name}={os.environ[name]}")
total = world.allreduce(world.Get_rank())
print(f"rank {world.Get_rank()} of {world.Get_size()}: the ranks sum to {total}")
