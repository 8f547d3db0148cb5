# Stands for what the libraries of a GPU say.
def forward():
    raise RuntimeError("CUDA error: device-side assert triggered")  # here


forward()
