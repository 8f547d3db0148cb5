"""Test curated environments: `python -m torchyard.environments.selftest HOME NAME…`.

Owns: the command, `tests.json` beside the contents of each environment.
Leaves: builds to contents.py, tests to running.py, which components there are to
names/components.py.
Always: a run takes the place of an earlier one on the same hardware, also when a step fails; exit
code 2 where a step or an import failed or a label is wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path

from torchyard.environments import contents, version_labels
from torchyard.environments.names import components, curated_environments
from torchyard.environments.names.components import EnvironmentComponent, TestRun
from torchyard.environments.names.curated_environments import Curated
from torchyard.environments.selftest import running


def run_tests(
    curated: Curated,
    folder: Path,
    only: Sequence[str] = (),
    previous: TestRun | None = None,
    at_once: int = 1,
) -> TestRun:
    """Compare a build with its label, import what its packages use of each other, and do the step
    of each component that it holds.

    Args:
        folder: the build.
        only: steps to do; all when empty. The others keep the result of `previous`.
        at_once: so many steps run at a time.
    """
    python = folder / "bin" / "python"
    on_disk = running.distributions(python, os.environ)
    answer = running.answer(python, [name for name, _ in curated.variables], os.environ)
    label = version_labels.of_curated(curated, platform.machine().lower())
    pairs, faults = running.pairs(python, os.environ)
    promised = components.components_of(curated) if components.promises(curated) else ()
    hardware = running.hardware(python, os.environ)
    has_gpu = hardware.startswith("GPU")
    there = [
        entry
        for entry in promised
        if entry.state != "unavailable" and (has_gpu or not entry.needs_gpu)
    ]
    chosen = [entry for entry in there if not only or entry.component.step in only]
    steps = {
        entry.component.name: previous.steps[entry.component.name]
        for entry in there
        if previous and entry not in chosen and entry.component.name in previous.steps
    }

    def do(entry: EnvironmentComponent) -> None:
        name = entry.component.name
        steps[name] = running.run_step(python, entry, os.environ)
        print(_line(curated.name, name, steps[name]), flush=True)

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(do, chosen))
    return TestRun(
        version=curated.version,
        date=datetime.now(timezone.utc).date().isoformat(),
        hardware=hardware,
        python=answer.python,
        # Without what the label leaves out: the pip that comes with Python.
        distributions=sum(name in label.packages for name in on_disk),
        modules=sum(len(entry["modules"]) for entry in on_disk.values()),
        differences=(*version_labels.differences(label, answer), *running.missing_modules(on_disk)),
        steps={
            entry.component.name: steps[entry.component.name]
            for entry in there
            if entry.component.name in steps
        },
        pairs=pairs,
        faults=tuple(faults),
    )


def record(file: Path, run: TestRun) -> None:
    """Write a run to a `tests.json`, in place of one on the same hardware or of a past version."""
    other_runs = [
        entry
        for entry in components.read_runs(file)
        if entry.hardware != run.hardware and entry.version == run.version
    ]
    entries = [
        _to_json(entry) for entry in sorted([*other_runs, run], key=lambda run: run.hardware)
    ]
    text = json.dumps(entries, indent=1, ensure_ascii=False) + "\n"
    file.write_text(text, encoding="utf-8")


def _to_json(run: TestRun) -> dict[str, object]:
    steps = {
        name: {key: value for key, value in dataclasses.asdict(step).items() if value != ""}
        for name, step in run.steps.items()
    }
    lists = {"differences": list(run.differences), "faults": list(run.faults)}
    return {**vars(run), **lists, "steps": steps}


def _line(environment: str, component: str, step: components.StepResult) -> str:
    outcome = f"error: {step.error}" if step.error else step.result
    return f"{environment}: {component} {step.version}: {outcome} ({step.seconds} s)"


def main() -> None:
    parser = argparse.ArgumentParser("python -m torchyard.environments.selftest")
    parser.add_argument("home", type=Path, help="the folder in which environments are built")
    parser.add_argument("names", nargs="+", help="curated environments")
    parser.add_argument("--only", action="append", default=[], help="a step, such as `torch`")
    parser.add_argument("--at-once", type=int, default=1, help="steps that run at a time")
    parser.add_argument("--no-record", action="store_true", help="do not write tests.json")
    arguments = parser.parse_args()
    failed = False
    for name in arguments.names:
        curated = curated_environments.find_by_name(name)
        if curated is None:
            parser.error(f"no curated environment has the name `{name}`")
        folder = contents.build_curated(arguments.home, curated)
        recorded = [run for run in components.runs(curated.name) if run.version == curated.version]
        previous = recorded[0] if recorded else None
        run = run_tests(curated, folder, arguments.only, previous, max(1, arguments.at_once))
        if not arguments.no_record:
            record(components.tests_file(curated.name), run)
        for sentence in (*run.differences, *run.faults):
            print(f"error: {curated.name}: {sentence}", file=sys.stderr)
        errors = [step for step in run.steps.values() if step.error]
        print(
            f"{curated.name}: {run.distributions} distributions with {run.modules} modules, "
            f"{len(run.differences)} differences from the label; "
            f"{run.pairs} pairs of packages, {len(run.faults)} faults; "
            f"{len(run.steps) - len(errors)} steps done, {len(errors)} failed; {run.hardware}"
        )
        failed = failed or bool(errors or run.differences or run.faults)
    raise SystemExit(2 if failed else 0)


if __name__ == "__main__":
    main()
