# Stands for what the libraries of a GPU say.
class OutOfMemoryError(RuntimeError):
    pass


def forward():
    raise OutOfMemoryError(  # here
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        "79.10 GiB"
    )


forward()
