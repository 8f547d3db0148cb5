"""What a deployment collected, compared with the data its model was trained on.

Owns: which data is compared, the columns of both sides, the report.
Leaves: files to tables.py, samples to sampling.py, one column to columns.py.
Always: too few rows are an error; a sample in place of all rows is said, with its seed.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

from torchyard.base import refs
from torchyard.base.errors import InvalidInput, NotFound, did_you_mean
from torchyard.base.http import Transport
from torchyard.client.data import Data
from torchyard.client.drift import columns as compared
from torchyard.client.drift import tables
from torchyard.client.drift.columns import LEAST_ROWS, ColumnDrift, Thresholds
from torchyard.client.drift.payloads import Row, rows_of
from torchyard.client.drift.sampling import SampledTable
from torchyard.client.times import Duration, whole_seconds

MAX_ROWS = 50_000
_COLLECTIONS = ("model_inputs", "request")
_PERIOD = re.compile(r"\d{4}(/\d\d){0,4}")
_FORMS = ("%Y", "%Y/%m", "%Y/%m/%d", "%Y/%m/%d/%H", "%Y/%m/%d/%H/%M")


@dataclass(frozen=True)
class DriftOptions:
    """
    Attributes:
        since: how far back; None for all that is kept.
        columns: those to compare; all that both sides have when empty.
        categorical: those whose numbers are names.
        names: of the columns of rows that are lists; the model's signature says them when empty,
            or the training data.
        collection: `model_inputs` or `request` when empty.
        max_rows: of each side; a random sample of so many is taken of more.
    """

    since: Duration | None = None
    columns: Sequence[str] = ()
    categorical: Sequence[str] = ()
    names: Sequence[str] = ()
    collection: str = ""
    thresholds: Thresholds = field(default_factory=Thresholds)
    max_rows: int = MAX_ROWS
    seed: int = 0


@dataclass(frozen=True)
class Side:
    """`data` names it, `rows` is how many it has, `used` how many were compared."""

    data: str
    rows: int
    used: int


@dataclass(frozen=True)
class DriftReport:
    """
    Attributes:
        columns: the drifted ones first.
        left_out: columns that one side lacks: `collected` or `reference`.
        notices: what was sampled or could not be read, in sentences.
    """

    endpoint: str
    deployment: str
    collection: str
    collected: Side
    reference: Side
    columns: tuple[ColumnDrift, ...]
    left_out: Mapping[str, str]
    thresholds: Thresholds
    seed: int
    notices: tuple[str, ...] = ()

    @property
    def drifted(self) -> tuple[str, ...]:
        """Names of the columns that have drifted."""
        return tuple(each.column for each in self.columns if each.result == compared.DRIFTED)

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "columns": [each.to_json() for each in self.columns],
            "drifted": list(self.drifted),
            "notices": list(self.notices),
        }


def compare(
    transport: Transport,
    data: Data,
    workspace_path: str,
    deployment: Mapping[str, Any],
    reference: str | Path,
    options: DriftOptions,
) -> DriftReport:
    """
    Args:
        deployment: its JSON, as the server answers it.
        reference: a file or folder here, or `name`, `name:version`, `name@latest` of a data asset.

    Raises:
        InvalidInput: nothing is collected, too few rows, or no column is in both.
        NotFound: the training data does not exist.
    """
    if options.max_rows < LEAST_ROWS:
        raise InvalidInput(
            f"`max_rows` is {options.max_rows}, fewer than {LEAST_ROWS}", "leave it out"
        )
    collection, asset = _collection(deployment, options.collection)
    with tempfile.TemporaryDirectory(prefix="torchyard-drift-") as scratch:
        training, collected = (SampledTable(options.max_rows, options.seed) for _ in range(2))
        for row in tables.rows_in(_local(data, reference, Path(scratch) / "reference")):
            training.add(row)
        if training.seen < LEAST_ROWS:
            raise _too_few(f"the training data `{reference}`", training.seen, "name more of it")
        names = [list(options.names)] if options.names else []
        names = names or _name_lists(transport, workspace_path, deployment, training.names)
        reader = _Events(data, asset, Path(scratch) / "collected", options.since)
        for row in reader.rows(names):
            collected.add(row)
    if collected.seen < LEAST_ROWS:
        since = f" in the last {options.since}" if options.since is not None else ""
        subject = f"`{collection}` of deployment `{deployment['name']}`{since}"
        raise _too_few(subject, collected.seen, reader.hint(options, training.names))
    both, left_out = _columns(training.names, collected.names, options)
    return DriftReport(
        str(deployment["endpoint_name"]),
        str(deployment["name"]),
        collection,
        Side(asset, collected.seen, collected.used),
        Side(str(reference), training.seen, training.used),
        tuple(_compared(both, training, collected, options)),
        left_out,
        options.thresholds,
        options.seed,
        tuple([*_sampled(training, collected, options.seed), *reader.notices()]),
    )


def _compared(
    names: Sequence[str], training: SampledTable, collected: SampledTable, options: DriftOptions
) -> list[ColumnDrift]:
    """Each column's comparison, the drifted ones first."""
    results = []
    for name in names:
        kind = compared.CATEGORICAL if name in options.categorical else ""
        sides = training.column(name), collected.column(name)
        results.append(compared.compare(name, *sides, options.thresholds, len(names), kind))
    order = (compared.DRIFTED, compared.MODERATE, compared.UNKNOWN, compared.STABLE)
    return sorted(results, key=lambda each: order.index(each.result))


def _collection(deployment: Mapping[str, Any], collection: str) -> tuple[str, str]:
    """A collection, and its data asset as `name:version`."""
    subject = f"deployment `{deployment['name']}`"
    collector = deployment.get("data_collector") or {}
    listed = {
        str(name): body or {}
        for name, body in (collector.get("collections") or {}).items()
        if str((body or {}).get("enabled", True)).lower() == "true"
    }
    if not listed:
        raise InvalidInput(
            f"{subject} collects nothing",
            "add `data_collector: {collections: {model_inputs: {enabled: true}}}` to its file",
            code="nothing_collected",
        )
    name = collection or next((each for each in _COLLECTIONS if each in listed), "")
    if name not in listed:
        raise InvalidInput(
            f"{subject} collects no `{collection or 'model_inputs'}`",
            f"choose one with `--collection`: {', '.join(listed)}",
            code="nothing_collected",
        )
    written = listed[name].get("data") or {}
    if isinstance(written, str):
        reference = refs.parse(written)
        written = {"name": reference.name, "version": reference.version}
    default = f"{deployment['endpoint_name']}-{deployment['name']}-{name}"
    return name, f"{written.get('name') or default}:{written.get('version') or 'latest'}"


def _local(data: Data, reference: str | Path, folder: Path) -> Path:
    """The training data on this machine; an asset is downloaded."""
    path = Path(reference)
    if isinstance(reference, Path) or path.exists():
        return path
    try:
        data_ref = refs.parse(reference)
    except InvalidInput as error:
        raise InvalidInput(
            f"`{reference}` is neither a file here nor a data asset",
            "give a path, or `name:version` of `yard data list`",
        ) from error
    if data_ref.label and data_ref.label != "latest":
        raise NotFound(f"`{reference}` has the label `{data_ref.label}`", "write `@latest`")
    try:
        data.download(data_ref.name, data_ref.version or "latest", folder)
    except NotFound as error:
        error.hint = error.hint or "give a path here, or a data asset of `yard data list`"
        raise
    return folder


def _name_lists(
    transport: Transport, workspace_path: str, deployment: Mapping[str, Any], names: Sequence[str]
) -> list[list[str]]:
    """What rows that are lists may have as columns: of the model's signature, of the training
    data.
    """
    model = deployment.get("model")
    lists = []
    if isinstance(model, str) and model.startswith("azureml:"):
        model_ref = refs.parse(model)
        path = f"{workspace_path}/models/{quote(model_ref.name, safe='')}/versions"
        try:
            raw = transport.get(f"{path}/{quote(model_ref.version or 'latest', safe='')}")
        except NotFound:
            raw = {}
        inputs = (raw.get("signature") or {}).get("inputs") or []
        if inputs and all(each.get("shape") is None and each.get("name") for each in inputs):
            lists.append([str(each["name"]) for each in inputs])
    return [*lists, list(names)]


def _columns(
    reference: Sequence[str], collected: Sequence[str], options: DriftOptions
) -> tuple[list[str], dict[str, str]]:
    """Those to compare, and which side lacks the others."""
    both = [name for name in reference if name in set(collected)]
    left_out = {name: "collected" for name in reference if name not in both}
    left_out |= {name: "reference" for name in collected if name not in both}
    for name in (*options.columns, *options.categorical):
        if name in both:
            continue
        lacking = left_out.get(name)
        where = {"collected": "the collected data", "reference": "the training data"}
        raise InvalidInput(
            f"column `{name[:80]}` is not in {where.get(lacking or '', 'the data of either side')}",
            did_you_mean(name, both, f"both have: {_some(both)}"),
        )
    if not both:
        raise InvalidInput(
            f"no column is in both: the training data has {_some(reference)}, the collected data "
            f"{_some(collected)}",
            "name the columns of collected lists in their order with `--names a,b,c`",
            code="no_common_column",
        )
    return [name for name in both if not options.columns or name in options.columns], left_out


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name[:50]}`" for name in names[:8])
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown or "none"


def _sampled(training: SampledTable, collected: SampledTable, seed: int) -> Iterator[str]:
    for kind, table in (("training", training), ("collected", collected)):
        if table.seen > table.used:
            yield (
                f"{table.used} of {table.seen} {kind} rows were compared, a random sample with "
                f"seed {seed}"
            )


def _too_few(subject: str, rows: int, hint: str) -> InvalidInput:
    message = f"{subject} has {rows} rows, and at least {LEAST_ROWS} are needed"
    return InvalidInput(message, hint, code="too_few_rows")


class _Events:
    """Reads the events of a collection, one file at a time.

    Args:
        asset: `name:version`.
    """

    def __init__(self, data: Data, asset: str, folder: Path, since: Duration | None) -> None:
        self._data, self._folder = data, folder
        self._name, _, self._version = asset.partition(":")
        self._since = None
        if since is not None:
            back = timedelta(seconds=min(whole_seconds(since, "since"), 10**9))
            self._since = datetime.now(timezone.utc) - back
        self._events = self._without_table = self._truncated = self._broken = 0
        self._widths: set[int] = set()

    def rows(self, name_lists: Sequence[Sequence[str]]) -> Iterator[Row]:
        for file in self._data.files(self._name, self._version):
            if not file.path.endswith(".jsonl") or self._is_old(file.path):
                continue
            for path in self._data.fetch(self._name, self._version, [file], self._folder):
                with open(path, encoding="utf-8", errors="replace") as opened:
                    for line in opened:
                        yield from self._of_line(line, name_lists)
                path.unlink()

    def _is_old(self, path: str) -> bool:
        match = _PERIOD.match(path)
        if match is None or self._since is None:
            return False
        return match[0] < self._since.strftime(_FORMS[match[0].count("/")])

    def _of_line(self, line: str, name_lists: Sequence[Sequence[str]]) -> Sequence[Row]:
        try:
            event = json.loads(line)
            at = datetime.fromisoformat(str(event["time"]).replace("Z", "+00:00"))
            if self._since is not None and at < self._since:
                return ()
        except (ValueError, KeyError, TypeError, RecursionError):
            self._broken += bool(line.strip())
            return ()
        self._events += 1
        if event.get("truncated") or "data" not in event:
            self._truncated += 1
            return ()
        for names in name_lists:
            rows = rows_of(event["data"], names)
            if rows is not None:
                return rows
        self._without_table += 1
        self._widths |= _widths(event["data"])
        return ()

    def hint(self, options: DriftOptions, reference: Sequence[str]) -> str:
        """For too few rows."""
        if not self._without_table:
            return "send more requests" + ("" if options.since is None else ", or go further back")
        if self._widths:
            width = min(self._widths)
            return (
                f"its rows are lists of {width} values, and the training data has "
                f"{len(reference)} columns: name them in their order with `--names a,b,c`"
            )
        return f"{self._without_table} of {self._events} requests hold no table of columns"

    def notices(self) -> Iterator[str]:
        for count, reason in (
            (self._without_table, "hold no table with these columns"),
            (self._truncated, "were too large to be kept with their content"),
        ):
            if count:
                yield f"{count} of {self._events} collected requests {reason}"
        if self._broken:
            yield f"{self._broken} lines of the collected data could not be read"


def _widths(payload: Any) -> set[int]:
    """Lengths of the rows of lists somewhere in it."""
    while isinstance(payload, Mapping) and payload:
        payload = next((each for each in payload.values() if isinstance(each, list | dict)), None)
    if isinstance(payload, list) and payload and all(isinstance(row, list) for row in payload[:10]):
        return {len(row) for row in payload[:10]}
    return set()
