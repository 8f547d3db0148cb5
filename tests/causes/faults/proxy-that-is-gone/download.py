import urllib.request
from pathlib import Path


def fetch(url, folder):
    target = Path(folder) / url.rpartition("/")[2]
    if not target.exists():
        print(f"downloading {url}", flush=True)
        urllib.request.urlretrieve(url, target)  # here
    return target
