# Stands for what the libraries of a GPU say.
def forward():
    raise RuntimeError("CUDA error: uncorrectable ECC error encountered")  # here


forward()
