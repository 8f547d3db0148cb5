import multiprocessing
from concurrent.futures import ProcessPoolExecutor


class BadImage(Exception):
    def __init__(self, path, reason):  # here
        super().__init__(f"{path}: {reason}")  # here
        self.path = path


def decode(path):
    if path.endswith("7.png"):
        raise BadImage(path, "truncated after 312 bytes")  # here
    return len(path)


def main():
    paths = [f"img_{number:04}.png" for number in range(16)]
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        for number, size in enumerate(pool.map(decode, paths)):  # here
            print(f"{paths[number]}: {size}", flush=True)


if __name__ == "__main__":
    main()
