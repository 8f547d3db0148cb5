import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
# Rows that each rank sends to each expert; the router of rank 1 dropped none.
sent = [[3, 2, 3], [4, 2, 2], [3, 2, 3]][rank]
expected = [[3, 3, 3], [2, 2, 2], [3, 3, 3]][rank]
tokens = torch.randn(sum(sent), 256)
received = torch.empty(sum(expected), 256)
dist.all_to_all_single(received, tokens, expected, sent)  # here
print(f"rank {rank} computes {len(received)} tokens", flush=True)
dist.barrier()
