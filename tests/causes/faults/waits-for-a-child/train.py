import multiprocessing
import time

import torch
import torch.distributed as dist


def augment(images, is_done):
    while not is_done.is_set():
        time.sleep(0.2)  # here


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    is_done = multiprocessing.Event()
    if rank == 1:
        child = multiprocessing.Process(target=augment, args=([1, 2, 3], is_done))
        child.start()
        child.join()  # here
    total = torch.ones(1)
    dist.all_reduce(total)
    is_done.set()
    print(f"{total.item():.0f} ranks have their images", flush=True)
