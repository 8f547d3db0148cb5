"""`python -m torch_ort.configure`, which torch-ort asks for after its installation."""

if __name__ == "__main__":
    print("torchyard's torch_ort needs no configuration")
