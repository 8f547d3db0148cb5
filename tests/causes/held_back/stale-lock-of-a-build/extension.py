import pathlib
import time

from torch.utils.file_baton import FileBaton


def build(folder: pathlib.Path):
    """Compile the kernels once a node; the first process builds, the others wait."""
    folder.mkdir(parents=True, exist_ok=True)
    baton = FileBaton(str(folder / "lock"))
    if not baton.try_acquire():
        print("another process builds the extension", flush=True)
        baton.wait()  # here
        return
    try:
        time.sleep(1)  # the compiler
        (folder / "fused_ops.o").write_bytes(b"\x7fELF")
    finally:
        baton.release()
