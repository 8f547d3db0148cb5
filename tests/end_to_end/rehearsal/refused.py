"""Call everything that can't be rehearsed on a CPU, and print each answer."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.cuda import comm
from torch.utils import cpp_extension

CALLS: dict[str, Callable[[], Any]] = {
    "torch.cuda.memory_allocated": lambda: torch.cuda.memory_allocated(),
    "torch.cuda.max_memory_allocated": lambda: torch.cuda.max_memory_allocated(0),
    "torch.cuda.memory_reserved": lambda: torch.cuda.memory_reserved(),
    "torch.cuda.memory_summary": lambda: torch.cuda.memory_summary(),
    "torch.cuda.memory_stats": lambda: torch.cuda.memory_stats(),
    "torch.cuda.mem_get_info": lambda: torch.cuda.mem_get_info(),
    "torch.cuda.memory.max_memory_reserved": lambda: torch.cuda.memory.max_memory_reserved(),
    "torch.cuda.memory._record_memory_history": lambda: torch.cuda.memory._record_memory_history(),
    "total_memory": lambda: torch.cuda.get_device_properties(0).total_memory,
    "multi_processor_count": lambda: torch.cuda.get_device_properties(0).multi_processor_count,
    "torch.cuda.utilization": lambda: torch.cuda.utilization(),
    "torch.cuda.temperature": lambda: torch.cuda.temperature(),
    "torch.cuda.CUDAGraph": lambda: torch.cuda.CUDAGraph(),
    "torch.cuda.graph": lambda: torch.cuda.graph(None),
    "torch.cuda.make_graphed_callables": lambda: torch.cuda.make_graphed_callables(None, ()),
    "torch.cuda.nccl.all_reduce": lambda: torch.cuda.nccl.all_reduce([]),
    "torch.cuda.nccl.version": lambda: torch.cuda.nccl.version(),
    "torch.cuda.comm.broadcast": lambda: comm.broadcast(torch.ones(1), [0]),
    "torch.cuda.cudart": lambda: torch.cuda.cudart(),
    "torch.distributed.ProcessGroupNCCL": lambda: dist.ProcessGroupNCCL.Options(),
    "triton": lambda: __import__("triton"),
    "cupy": lambda: __import__("cupy"),
    "torch.utils.cpp_extension.load": lambda: cpp_extension.load("a", ["a.cpp", "b.cu"]),
    "torch.utils.cpp_extension.load_inline": lambda: cpp_extension.load_inline(
        "a", [""], cuda_sources=["__global__ void f() {}"]
    ),
    "torch.utils.cpp_extension.CUDAExtension": lambda: cpp_extension.CUDAExtension("a", ["b.cu"]),
    "cuda device on an unknown way": lambda: torch.UntypedStorage(4, device="cuda"),
}


def main() -> None:
    for name, ask in CALLS.items():
        try:
            answer = ask()
        except RuntimeError as error:
            answer = error
        print(f"asked for {name}: {answer}")
    if hasattr(torch, "accelerator"):
        name = "torch.accelerator.memory_allocated"
        try:
            print(f"asked for {name}: {torch.accelerator.memory_allocated()}")
        except RuntimeError as error:
            print(f"asked for {name}: {error}")
    print("factories without a rehearsal:", forgotten())


def forgotten() -> list[str]:
    """Functions of this torch that take a device and were not changed for the rehearsal."""
    declared = (Path(torch.__file__).parent / "_C" / "_VariableFunctions.pyi").read_text()
    signatures = re.findall(r"^def ([a-z]\w*)\((.*?)\) -> ", declared, re.DOTALL | re.MULTILINE)
    names = {name for name, arguments in signatures if re.search(r"\bdevice:", arguments)}
    return sorted(name for name in names if not hasattr(getattr(torch, name), "__wrapped__"))


if __name__ == "__main__":
    main()
