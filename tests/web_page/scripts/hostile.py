"""Whatever a person could put into names, to have a page run it."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from pathlib import Path

SCRIPT = "<script>window.hacked=1</script>"
IMAGE = '"><img src=x onerror="window.hacked=2">'
LINK = "javascript:window.hacked=3"


def log(**body: object) -> None:
    request = urllib.request.Request(
        f"{os.environ['MLFLOW_TRACKING_URI']}/api/2.0/mlflow/runs/log-batch",
        json.dumps({"run_id": os.environ["MLFLOW_RUN_ID"], **body}).encode(),
        {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {os.environ.get('MLFLOW_TRACKING_TOKEN', '')}",
        },
    )
    urllib.request.urlopen(request, timeout=60).close()


def main() -> None:
    now = int(time.time() * 1000)
    # MLflow's own rule for keys leaves no `<`; parameters' and tags' values have none.
    log(
        metrics=[
            {"key": "loss .- img src=x", "value": 1 / (n + 1), "timestamp": now, "step": n}
            for n in range(5)
        ],
        params=[{"key": "markup", "value": SCRIPT}, {"key": "link", "value": LINK}],
        tags=[{"key": IMAGE, "value": SCRIPT}, {"key": "mlflow.note.content", "value": IMAGE}],
    )
    print(SCRIPT)
    print(IMAGE)
    print(f"\033[31m{SCRIPT}\033[0m \033]8;;{LINK}\007link\033]8;;\007 \033]0;title\007")
    folder = Path("outputs")
    folder.mkdir(exist_ok=True)
    (folder / "<img src=x onerror=window.hacked=4>.txt").write_text(SCRIPT)
    (folder / "page.html").write_text(f"<html>{SCRIPT}{IMAGE}</html>")
    (folder / "drawing.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" onload="window.hacked=5">{SCRIPT}</svg>'
    )
    (folder / "table.csv").write_text(f"a,{SCRIPT}\n1,{IMAGE}\n")
    (folder / "record.json").write_text(json.dumps({IMAGE: SCRIPT}))
    raise RuntimeError(f"{SCRIPT} {IMAGE}")


if __name__ == "__main__":
    main()
