"""Rows of tables in files: CSV, JSON lines, parquet, folders of them, MLTable.

Owns: reading them row by row.
Leaves: what of them is kept to sampling.py, fetching assets to comparison.py.
Always: an error names the file and the line; pyarrow is imported for parquet only.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import IO, Any

from torchyard.base.errors import InvalidInput
from torchyard.client.drift.payloads import Row, rows_of

_MLTABLE = "MLTable"
_CSV, _LINES, _PARQUET = (".csv", ".tsv"), (".jsonl", ".ndjson", ".json"), (".parquet", ".pq")
_SUFFIXES = (*_CSV, *_LINES, *_PARQUET)
_MOST_CELL = 1 << 20
_HINT = "name a file or a folder of CSV, JSON lines or parquet, or an MLTable"


def rows_in(path: Path) -> Iterator[Row]:
    """Every row of a file, of a folder's files in the order of their names, or of an MLTable.

    Raises:
        InvalidInput: it is none of these, or can't be read.
    """
    if path.name == _MLTABLE and path.is_file():
        path = path.parent
    if path.is_dir():
        yield from _of_folder(path)
    elif path.exists():
        yield from _of_file(path)
    else:
        raise InvalidInput(f"the path `{path}` does not exist", _HINT)


def _of_folder(folder: Path) -> Iterator[Row]:
    mltable = folder / _MLTABLE
    delimiter = ""
    if mltable.is_file():
        files, delimiter = _of_mltable(mltable)
    else:
        files = sorted(each for each in folder.rglob("*") if _suffix(each) and each.is_file())
    if not files:
        raise InvalidInput(f"`{folder}` holds no table", _HINT)
    for file in files:
        yield from _of_file(file, delimiter)


def _of_mltable(file: Path) -> tuple[list[Path], str]:
    """Its files and their delimiter, empty for that of their suffix."""
    import yaml

    try:
        document = yaml.safe_load(file.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidInput(f"`{file}` is not YAML", "check the file `MLTable`") from error
    listed = document.get("paths") if isinstance(document, Mapping) else None
    files: list[Path] = []
    for entry in listed if isinstance(listed, list) else []:
        ((kind, written), *_) = (
            entry.items() if isinstance(entry, Mapping) and entry else [("", "")]
        )
        if kind not in ("file", "folder", "pattern") or "://" in str(written):
            raise InvalidInput(
                f"`{file}` names `{written}`, which is not a file beside it",
                "use an MLTable whose `paths` are `file`, `folder` or `pattern`",
            )
        files += _matching_files(file.parent, kind, str(written))
    delimiter = ""
    steps = document.get("transformations") if isinstance(document, Mapping) else None
    for step in steps if isinstance(steps, list) else []:
        settings = step.get("read_delimited") if isinstance(step, Mapping) else None
        if isinstance(settings, Mapping):
            delimiter = str(settings.get("delimiter") or ",")
    return files, delimiter


def _matching_files(folder: Path, kind: str, written: str) -> list[Path]:
    written = written.removeprefix("./")
    if ".." in Path(written).parts or Path(written).is_absolute():
        raise InvalidInput(f"`{written}` leads out of the folder of its MLTable", _HINT)
    if kind == "file":
        return [folder / written]
    if kind == "folder":
        return sorted(each for each in (folder / written).rglob("*") if _suffix(each))
    return sorted(each for each in folder.glob(written) if each.is_file())


def _suffix(file: Path) -> str:
    """The known suffix, without `.gz`; empty for another."""
    name = file.name.lower().removesuffix(".gz")
    return next((suffix for suffix in _SUFFIXES if name.endswith(suffix)), "")


def _of_file(file: Path, delimiter: str = "") -> Iterator[Row]:
    suffix = _suffix(file)
    try:
        if suffix in _PARQUET:
            yield from _of_parquet(file)
        elif suffix in _CSV or delimiter:
            with _opened(file) as opened:
                yield from _of_csv(file, opened, delimiter or ("\t" if suffix == ".tsv" else ","))
        elif suffix:
            with _opened(file) as opened:
                yield from _of_json(file, opened)
        else:
            raise InvalidInput(f"`{file.name}` is not a table by its name", _HINT)
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"`{file}` can't be read ({reason})", "check the file") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"`{file}` is not UTF-8", "convert it first") from error


def _opened(file: Path) -> IO[str]:
    if file.name.lower().endswith(".gz"):
        return gzip.open(file, "rt", encoding="utf-8-sig", newline="")
    return open(file, encoding="utf-8-sig", newline="")


def _of_csv(file: Path, opened: IO[str], delimiter: str) -> Iterator[Row]:
    csv.field_size_limit(_MOST_CELL)
    reader = csv.reader(opened, delimiter=delimiter[:1])
    try:
        names = next(reader, None)
        if not names:
            raise InvalidInput(f"`{file}` is empty", "its first line holds the columns' names")
        for row in reader:
            if row:
                yield dict(zip(names, row, strict=False))
    except csv.Error as error:
        raise InvalidInput(
            f"`{file}` is not CSV: {error}, in line {reader.line_num}", "check the file"
        ) from error


def _of_json(file: Path, opened: IO[str]) -> Iterator[Row]:
    """JSON lines, of which each is a record or an event of a data collector; or one document with
    records in it.
    """
    lines = ((number, line) for number, line in enumerate(opened, 1) if line.strip())
    first, second = next(lines, None), next(lines, None)
    if first is None:
        return
    if second is None or not isinstance(_parsed(first[1]), dict):
        rest = "".join(line for _, line in lines)
        value = _parsed(first[1] + ("" if second is None else second[1]) + rest)
        rows = _of_event(value) if isinstance(value, dict) else rows_of(value)
        if rows is None:
            raise InvalidInput(f"`{file}` is not a table in JSON", "write one record a line")
        yield from rows
        return
    for number, line in chain((first, second), lines):
        value = _parsed(line)
        rows = _of_event(value) if isinstance(value, dict) else None
        if rows is None:
            raise InvalidInput(f"line {number} of `{file}` is not a record", "write one a line")
        yield from rows


def _of_event(value: dict[str, Any]) -> list[Row] | None:
    """The rows of a collected event; another object is a row itself, or holds rows."""
    if "specversion" in value and "data" in value:
        return rows_of(value["data"]) or []
    rows = rows_of(value)
    return [value] if rows is None else rows


def _parsed(text: str) -> Any:
    """None for what is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _of_parquet(file: Path) -> Iterator[Row]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise InvalidInput(
            f"`{file.name}` is parquet, and pyarrow is not installed",
            "install it: `pip install 'torchyard[parquet]'`",
        ) from error
    try:
        with parquet.ParquetFile(file) as opened:
            for batch in opened.iter_batches():
                yield from batch.to_pylist()
    except pyarrow.ArrowException as error:
        raise InvalidInput(f"`{file}` is not parquet ({error})", "check the file") from error
