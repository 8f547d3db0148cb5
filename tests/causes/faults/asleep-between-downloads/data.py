import time


def download(name, attempts=10):
    for attempt in range(attempts):
        try:
            return open(f"/tmp/no-such-mirror/{name}").read()
        except OSError as error:
            print(f"{name}: {error}, attempt {attempt + 1} of {attempts}", flush=True)
            time.sleep(4**attempt)  # here
    return ""
