import os

folder = os.environ["DATA_DIR"]  # here
print(os.listdir(folder))
