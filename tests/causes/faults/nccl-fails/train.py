# Stands for what the libraries of a GPU say.
def forward():
    raise RuntimeError(  # here
        "NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error, NCCL version "
        "2.20.5 ncclSystemError: System call (e.g. socket, malloc) or external library "
        "call failed"
    )


forward()
