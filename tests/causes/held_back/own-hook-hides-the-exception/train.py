import house_style
import torch
import torch.distributed as dist

OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


def make_optimizer(name, parameters):
    if name not in OPTIMIZERS:
        raise LookupError(f"unknown optimizer {name}, not one of {', '.join(OPTIMIZERS)}")  # here
    return OPTIMIZERS[name](parameters, lr=0.1)


dist.init_process_group("gloo")
house_style.install()
choices = ["adam", "lamb", "sgd"]  # a comparison, one each rank
model = torch.nn.Linear(4, 4)
optimizer = make_optimizer(choices[dist.get_rank()], model.parameters())
for _ in range(10):
    optimizer.zero_grad()
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
loss = model(torch.ones(1, 4)).sum().detach()
results = [torch.zeros(()) for _ in choices]
dist.all_gather(results, loss)
