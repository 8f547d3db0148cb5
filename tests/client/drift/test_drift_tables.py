"""Rows of requests and of files in all the forms that are read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from torchyard.base.errors import InvalidInput
from torchyard.client.drift.payloads import rows_of
from torchyard.client.drift.sampling import SampledTable
from torchyard.client.drift.tables import rows_in

ROWS = [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
LISTS = [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "payload",
    [
        ROWS,
        LISTS,
        {"data": LISTS},
        {"data": ROWS},
        {"input_data": ROWS},
        {"input_data": LISTS},
        {"input_data": {"columns": ["a", "b"], "index": [0, 1], "data": LISTS}},
        {"input_data": {"a": [1, 3], "b": [2, 4]}},
        {"dataframe_split": {"columns": ["a", "b"], "data": LISTS}},
        {"dataframe_records": ROWS},
        {"instances": ROWS},
        {"Inputs": {"data": ROWS}, "GlobalParameters": 1.0},
        {"a": [1, 3], "b": [2, 4]},
    ],
)
def test_forms_of_requests(payload: Any) -> None:
    assert rows_of(payload, ["a", "b"]) == ROWS


@pytest.mark.parametrize(
    "payload",
    [
        None, 5, "text", {}, [[1, 2, 3]], [1, [2]], {"a": [1], "b": 2},
        {"a": [1, 2], "b": [3]}, {"a": {"b": 1}}, [{"a": 1}, [2]],
        {"data": {"data": {"data": {"data": {"data": {"data": ROWS}}}}}},
    ],
)  # fmt: skip
def test_what_is_no_table(payload: Any) -> None:
    assert rows_of(payload, ["a", "b"]) is None


def test_lists_need_names() -> None:
    assert rows_of(LISTS) is None
    assert rows_of([1, 2], ["a", "b"]) == [{"a": 1, "b": 2}]
    assert rows_of([1, 2], ["a"]) == [{"a": 1}, {"a": 2}]


def written(folder: Path, **contents: str) -> Path:
    for name, text in contents.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def test_files_of_every_kind(tmp_path: Path) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    written(tmp_path, a_csv="a,b\n1,2\n3,4\n", b_tsv="a\tb\n1\t2\n", c_jsonl=lines)
    written(tmp_path, d_json=json.dumps(ROWS, indent=1), e_json=json.dumps({"data": ROWS}))
    written(tmp_path, f_json=json.dumps(ROWS[0]))
    assert list(rows_in(tmp_path / "a.csv")) == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    assert list(rows_in(tmp_path / "b.tsv")) == [{"a": "1", "b": "2"}]
    for name in ("c.jsonl", "d.json", "e.json"):
        assert list(rows_in(tmp_path / name)) == ROWS, name
    assert list(rows_in(tmp_path / "f.json")) == ROWS[:1]
    assert len(list(rows_in(tmp_path))) == 10


def test_compressed_files_and_byte_order_marks(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.csv.gz", "wb") as file:
        file.write(b"\xef\xbb\xbfa,b\r\n1,2\r\n")
    assert list(rows_in(tmp_path)) == [{"a": "1", "b": "2"}]


def test_collected_events_are_training_data_too(tmp_path: Path) -> None:
    events = [{"specversion": "1.0", "data": [row]} for row in ROWS]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))
    assert list(rows_in(tmp_path)) == ROWS


def test_an_mltable_says_its_files(tmp_path: Path) -> None:
    written(tmp_path, a_txt="a;b\n1;2\n", b_csv="never,read\n1,1\n")
    steps = [{"read_delimited": {"delimiter": ";"}}]
    document = {"paths": [{"file": "./a.txt"}], "transformations": steps}
    (tmp_path / "MLTable").write_text(json.dumps(document))
    assert list(rows_in(tmp_path)) == list(rows_in(tmp_path / "MLTable")) == [{"a": "1", "b": "2"}]
    for path in ("../x.csv", "/etc/passwd"):
        (tmp_path / "MLTable").write_text(json.dumps({"paths": [{"file": path}]}))
        with pytest.raises(InvalidInput, match="leads out"):
            list(rows_in(tmp_path))


def test_parquet(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    assert list(rows_in(tmp_path)) == ROWS
    (tmp_path / "b.parquet").write_bytes(b"nothing")
    with pytest.raises(InvalidInput, match="not parquet"):
        list(rows_in(tmp_path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "is empty"),
        ("a.csv", b"a\n\xff\xfe\n", "not UTF-8"),
        ("a.jsonl", b'{"a": 1}\nnothing\n', "line 2"),
        ("a.json", b"5", "not a table"),
        ("a.bin", b"x", "not a table by its name"),
        ("a.csv.gz", b"x", "can't be read"),
    ],
)
def test_what_can_not_be_read(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInput, match=message):
        list(rows_in(tmp_path / name))


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="does not exist"):
        list(rows_in(tmp_path / "x"))
    with pytest.raises(InvalidInput, match="holds no table"):
        list(rows_in(tmp_path))


def test_a_sample_is_the_same_for_a_seed_and_even() -> None:
    def sample(seed: int) -> list[int]:
        table = SampledTable(100, seed)
        for number in range(10_000):
            table.add({"number": number})
        assert (table.seen, table.used) == (10_000, 100)
        return table.column("number")

    assert sample(1) == sample(1) != sample(2)
    assert 4000 < sum(sample(3)) / 100 < 6000
