"""Run MLflow's own tests against a yard-server and print what passed.

    python tests/mlflow_conformance/run.py CHECKOUT --python PYTHON [--markdown] [-k WORD] [FILE…]

CHECKOUT holds MLflow's `tests/` folder, unmodified; PYTHON has the mlflow of the same version
with what its tests need: see requirements-2.22.txt and requirements-3.txt beside this file.
Nothing of MLflow is in this repository.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FILES = (
    "tests/tracking/test_rest_tracking.py",
    "tests/tracking/test_model_registry.py",
    "tests/tracking/test_mlflow_artifacts.py",
    "tests/tracking/test_tracking.py",
    "tests/tracking/test_client.py",
    "tests/tracking/test_artifact_utils.py",
    "tests/tracking/test_log_image.py",
    "tests/tracking/test_log_figure.py",
    "tests/tracking/fluent/test_fluent.py",
    "tests/tracking/_model_registry",
)
COLUMNS = ("passed", "failed", "not applicable", "skipped", "never asked")


@contextmanager
def yard_server(folder: Path, current: Path) -> Iterator[tuple[str, str]]:
    """A server on a fresh home: its address and its token.

    It runs in the folder that the tests run in, for some compare relative paths.
    """
    home = folder / "home"
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "torchyard.server", "--home", str(home), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--ready-fd", str(writing)],
        pass_fds=[writing],
        cwd=current,
        stderr=(folder / "server.log").open("w"),
    )
    os.close(writing)
    try:
        with os.fdopen(reading) as ready:
            url = ready.readline().strip()
        if not url:
            raise SystemExit(f"the server did not start: {(folder / 'server.log').read_text()}")
        yield url, (home / "token").read_text().strip()
    finally:
        process.terminate()
        process.wait(30)


def run_tests(checkout: Path, python: Path, folder: Path, options: argparse.Namespace) -> list[Any]:
    results = folder / "results.jsonl"
    results.touch()
    tests = [str(checkout / test) for test in options.files or FILES if _exists(checkout, test)]
    with yard_server(folder, checkout) as (url, token):
        environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(HERE), str(checkout))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "YARD_CONFORMANCE_URL": url,
            "YARD_CONFORMANCE_TOKEN": token,
            "YARD_CONFORMANCE_HOME": str(folder / "home"),
            "YARD_CONFORMANCE_RESULTS": str(results),
            "YARD_CONFORMANCE_CHECKOUT": str(checkout),
        }
        environ["PATH"] = os.pathsep.join((str(python.parent), os.environ["PATH"]))
        if options.everything:
            environ["YARD_CONFORMANCE_EVERYTHING"] = "1"
        command = [str(python), "-m", "pytest", "-p", "yard_plugin", "-p", "no:cacheprovider"]
        # Its settings name what only MLflow's own environment has; its conftest files are read.
        settings = folder / "pytest.ini"
        settings.write_text("[pytest]\n")
        command += [f"-c{settings}", f"--rootdir={checkout}", "-q", f"--tb={options.tb}"]
        command += ["-k", options.k] if options.k else []
        # Where a failed test is read, its full text goes to standard error.
        subprocess.run([*command, *tests], env=environ, cwd=checkout, stdout=sys.stderr)
        if options.server_log:
            sys.stderr.write((folder / "server.log").read_text())
    return [json.loads(line) for line in results.read_text().splitlines()]


def _exists(checkout: Path, test: str) -> bool:
    return (checkout / test.partition("::")[0]).exists()


def table(results: list[Any], markdown: bool) -> str:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        counts[result["test"].partition("::")[0]][result["outcome"]] += 1
    total: Counter[str] = sum(counts.values(), Counter())
    lines = []
    if markdown:
        lines += ["| file | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, row in [*sorted(counts.items()), ("all", total)]:
        cells = [str(row[column]) for column in COLUMNS]
        if markdown:
            lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
        else:
            summary = ", ".join(f"{row[column]} {column}" for column in COLUMNS if row[column])
            lines.append(f"{name}: {summary}")
    applicable = total["passed"] + total["failed"]
    if applicable:
        share = 100 * total["passed"] / applicable
        lines += ["", f"{total['passed']} of {applicable} applicable passed: {share:.1f} %"]
    return "\n".join(lines)


def reasons(results: list[Any]) -> str:
    lines = []
    for outcome in ("failed", "not applicable", "skipped"):
        counts: Counter[str] = Counter()
        for result in results:
            if result["outcome"] == outcome:
                test = f"{result['test']}: " if outcome == "failed" else ""
                counts[test + result["reason"]] += 1
        lines += ["", f"{outcome}:"] if counts else []
        for reason, count in counts.most_common():
            lines.append(f"- {reason}" + (f" ({count})" if count > 1 else ""))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--everything", action="store_true", help="also what is not applicable")
    parser.add_argument("--tb", default="short", help="as pytest takes it")
    parser.add_argument("--server-log", action="store_true")
    parser.add_argument("--keep", type=Path, help="write the results of each test here, as JSON")
    parser.add_argument("-k", default="", help="only tests whose names fit, as pytest takes it")
    parser.add_argument("files", nargs="*", help=f"default: {' '.join(FILES)}")
    options = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        # The interpreter's own path is not resolved: a link tells Python its environment.
        results = run_tests(
            options.checkout.resolve(), options.python.absolute(), Path(name).resolve(), options
        )
    if options.keep:
        options.keep.write_text("".join(json.dumps(result) + "\n" for result in results))
    print(table(results, options.markdown))
    print(reasons(results))
    failed = [result for result in results if result["outcome"] == "failed"]
    raise SystemExit(1 if failed or not results else 0)


if __name__ == "__main__":
    main()
