"""Give public pipeline and component files to a server, run the pipelines, and write the page.

    python tests/public_examples/pipelines.py --repository FOLDER.git > PAGE

`--repository` is a clone of https://github.com/Azure/azureml-examples; nothing of it is kept here.
PAGE is docs/transcripts/pipelines.md.
A server of its own is started over a temporary home and stopped at the end; `--home` names a home
that is kept. `--check` only validates, which takes a minute; `--only WORD` takes some files.

Owns: running the accepted pipelines, the page.
Leaves: the files and the sorting to pipeline_files.py, what is set in them to pipelines.yml.
Always: an accepted pipeline is run, or its row says what a run needs.
"""

from __future__ import annotations

import argparse
import collections
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
sys.path += [str(path) for path in (HERE, TESTS / "end_to_end", TESTS)]

import pipeline_files  # noqa: E402
from pipeline_files import ACCEPTED, JOB, OTHER, REFUSED, WRONG, Outcome  # noqa: E402
from yard_under_test import ENDED, remove  # noqa: E402

from torchyard import Client  # noqa: E402
from torchyard.base.errors import TorchyardError  # noqa: E402
from torchyard.base.settings import Settings  # noqa: E402
from torchyard.client import embedded  # noqa: E402

_LONGEST = 300
_HEAD = """# Pipeline and component files of Azure/azureml-examples

Made by `python tests/public_examples/pipelines.py --repository FOLDER.git`: every pipeline job's, \
pipeline component's and command component's file in `cli` (commit {commit}), and the components \
of other types there. Each was given to a server of its own: jobs as `yard job validate` does, \
components as `yard component create` does, and then a pipeline of that one step is validated. \
Nothing is edited. What the repository's own scripts \
set with `--set`, download, register or create beforehand, the program sets and makes: clusters \
of the names used, data assets, models, an environment. Where they download data, and where a \
file names data on a site that this machine can't reach, stand small files of the same form, \
drawn from a seed: such a run shows that the pipeline works, and its figures mean nothing. The \
environments are those that torchyard has in place of Azure's. The seconds include building one \
where no earlier run had built it.

"""
_SERVED = """
Refused are kinds of steps that torchyard does not have, and components and models in registries \
that exist only on Azure. Of the {served} files that have none of these, **{accepted} are \
accepted, {percent} %**; of the pipeline jobs alone {jobs_accepted} of {jobs}. {own} of those that \
are wrong have a mistake of their own, which Azure's client (azure-ai-ml 1.35) does not mind.
"""


@dataclass(frozen=True)
class Run:
    """How a pipeline ended."""

    status: str
    steps: Mapping[str, int]
    seconds: int
    error: str = ""

    @property
    def in_words(self) -> str:
        steps = ", ".join(f"{count} {status}" for status, count in sorted(self.steps.items()))
        words = f"{self.status} in {self.seconds} s; steps: {steps}"
        return f"{words}; {_short(self.error)}" if self.error else words


def run_all(
    client: Client,
    folder: Path,
    chosen: Sequence[str],
    settings: Mapping[str, Mapping[str, Any]],
    limit_s: int,
) -> dict[str, Run]:
    """Submit each and wait for it: one at a time, since the machine may be small."""
    runs = {}
    for shown in chosen:
        setting = settings.get(shown, {})
        if "before" in setting:
            pipeline_files.add_environment(client, folder / setting["before"])
        runs[shown] = _run(client, folder / shown, setting.get("set", {}), limit_s)
        print(f"{shown}: {runs[shown].in_words}", file=sys.stderr)
    return runs


def _run(client: Client, file: Path, values: Mapping[str, Any], limit_s: int) -> Run:
    began = time.monotonic()
    document = pipeline_files.document_of(file, values)
    try:
        name = client.jobs.create(document.value, document.folder).name
    except TorchyardError as error:
        return Run("refused", {}, 0, error.message)
    while (job := client.jobs.get(name)).status not in ENDED:
        if time.monotonic() - began > limit_s:
            client.jobs.cancel(name, now=True)
            return Run("still running", {}, limit_s, f"canceled after {limit_s} s")
        time.sleep(0.5)
    seconds = round(time.monotonic() - began)
    children = client.jobs.list(parent_job_name=name, max_results=None)
    steps = collections.Counter(str(child.status) for child in children)
    reason = str((job.raw.get("error") or {}).get("message", ""))
    return Run(job.status, steps, seconds, reason)


def page(
    commit: str,
    outcomes: Sequence[Outcome],
    runs: Mapping[str, Run],
    settings: Mapping[str, Mapping[str, Any]],
) -> Iterator[str]:
    yield _HEAD.format(commit=commit)
    yield "| kind | files | accepted | refused by name | wrong |\n|---|---|---|---|---|\n"
    for kind in dict.fromkeys(outcome.kind for outcome in outcomes):
        results = collections.Counter(each.result for each in outcomes if each.kind == kind)
        counts = (results[ACCEPTED], results[REFUSED], results[WRONG])
        name = "component of another type" if kind == OTHER else kind
        yield f"| {name} | {sum(counts)} | {counts[0]} | {counts[1]} | {counts[2]} |\n"
    served = [outcome for outcome in outcomes if outcome.result != REFUSED]
    accepted = [outcome for outcome in served if outcome.result == ACCEPTED]
    yield _SERVED.format(
        served=len(served),
        accepted=len(accepted),
        percent=round(100 * len(accepted) / max(len(served), 1)),
        jobs=sum(outcome.kind == JOB for outcome in served),
        jobs_accepted=sum(outcome.kind == JOB for outcome in accepted),
        own=sum(
            outcome.result == WRONG and "own" in settings.get(outcome.file, {})
            for outcome in served
        ),
    )
    ended = collections.Counter(run.status for run in runs.values())
    words = ", ".join(f"{count} {status}" for status, count in sorted(ended.items())) or "none"
    yield f"\nOf the accepted pipeline jobs {len(runs)} were run: {words}.\n\n"
    yield "| file | | what came of it |\n|---|---|---|\n"
    for outcome in sorted(outcomes, key=lambda each: (each.kind != JOB, each.file)):
        yield _row(outcome, runs.get(outcome.file), settings.get(outcome.file, {}))


def _row(outcome: Outcome, run: Run | None, setting: Mapping[str, Any]) -> str:
    words = "<br>".join(_short(reason) for reason in outcome.reasons[:3])
    if len(outcome.reasons) > 3:
        words += f"<br>and {len(outcome.reasons) - 3} more"
    if run is not None:
        words = run.in_words
    elif outcome.result == ACCEPTED and outcome.kind == JOB:
        words = f"not run: needs {setting['skip']}" if "skip" in setting else "not run"
    if outcome.result == WRONG and "own" in setting:
        words += f"<br>the file's own mistake: {setting['own']}"
    if values := setting.get("set"):
        texts = ", ".join(f"`{key}={value}`" for key, value in values.items())
        words += f"<br>set: {texts}"
    words = words.replace("|", "\\|").replace("\n", " ")
    return f"| `{outcome.file}` | {outcome.result} | {words} |\n"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def work(options: argparse.Namespace, home: Path, top: Path) -> str:
    commit = pipeline_files.copy(options.repository, top / "files")
    folder, data = top / "files" / "cli", top / "data"
    setting_file = HERE / "pipelines.yml"
    settings: dict[str, Any] = yaml.safe_load(setting_file.read_text(encoding="utf-8"))
    files = [each for each in pipeline_files.find(folder) if options.only in str(each[1])]
    # Components first: pipelines name some of them.
    files.sort(key=lambda each: each[0] == JOB)
    pipeline_files.make_data(data)
    pipeline_files.add_stand_ins(files, data / "iris.csv")
    server = Settings(home)
    try:
        client = Client(workspace="default", settings=server)
        pipeline_files.prepare(client, folder, data)
        outcomes = []
        for kind, file in files:
            shown = str(file.relative_to(folder))
            values = settings.get(shown, {}).get("set", {})
            outcomes.append(pipeline_files.check(client, kind, file, shown, values))
        chosen = [
            outcome.file
            for outcome in outcomes
            if outcome.result == ACCEPTED
            and outcome.kind == JOB
            and "skip" not in settings.get(outcome.file, {})
        ]
        runs = {} if options.check else run_all(client, folder, chosen, settings, options.limit_s)
    finally:
        embedded.stop(server)
    return "".join(page(commit, outcomes, runs, settings))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("--home", type=Path, help="a home that is kept, with its environments")
    parser.add_argument("--check", action="store_true", help="validate only")
    parser.add_argument("--only", default="", help="files whose path has this word")
    parser.add_argument("--limit-s", type=int, default=900, help="for each pipeline")
    options = parser.parse_args()
    home = options.home or Path(tempfile.mkdtemp(prefix="torchyard-pipelines-"))
    home.mkdir(mode=0o700, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory() as top:
            sys.stdout.write(work(options, home, Path(top)))
    finally:
        if options.home is None:
            remove(home)


if __name__ == "__main__":
    main()
