import os
import threading

import torch
import torch.distributed as dist


def write_samples(samples):
    reading, writing = os.pipe()
    for sample in samples:
        os.write(writing, sample.numpy().tobytes())  # here
    os.close(writing)


dist.init_process_group("gloo")
samples = []
for step in range(30):
    gradients = torch.randn(1000)
    dist.all_reduce(gradients)
    samples.append(gradients)
    print(f"step {step}", flush=True)
if dist.get_rank() == 0:
    writer = threading.Thread(target=write_samples, args=(samples,))
    writer.start()
    writer.join()  # here
dist.barrier()
