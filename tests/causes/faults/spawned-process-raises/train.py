import time

import torch.multiprocessing as mp


def train(rank):
    if rank == 1:
        raise ValueError("bad label 7")  # here
    time.sleep(60)


if __name__ == "__main__":
    mp.spawn(train, nprocs=2)
