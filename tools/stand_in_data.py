"""Make the files that take the place of data on sites which run_notebooks.py can't reach.

    python tools/stand_in_data.py FOLDER

Runs in the Python of the notebooks' clients, with numpy, pandas, pyarrow, Pillow and scikit-learn.

Owns: `FOLDER/HOST/PATH`, each with the columns, types and names of the file in whose place it is.
Leaves: serving them to stand_in_proxy.py, which notebook got what to the page.
Always: made from a seed or from scikit-learn's own data sets, never from the file itself; a
    notebook's figures mean nothing. Files that are there stay.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import sys
import tarfile
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import joblib  # type: ignore[import-not-found,import-untyped,unused-ignore]
import numpy as np
import pandas as pd
from PIL import Image
from sklearn import datasets

SEED = 735
_MNIST_IMAGES = {"train": 6000, "t10k": 1000}
_OPEN_DATA = "azureopendatastorage.blob.core.windows.net"
# azureml-opendatasets lists the files there and reads them here.
_OPEN_DATA_CACHE = "azureopendatastorage.azurefd.net"
_EXAMPLE_DATA = "azuremlexampledata.blob.core.windows.net"
_DELTA_TIME = datetime(2022, 9, 1, tzinfo=timezone.utc)


def pets(folder: Path) -> None:
    """Small pictures in one folder for each label."""
    random = np.random.default_rng(SEED)
    for label in ("Cat", "Dog"):
        (folder / label).mkdir(parents=True, exist_ok=True)
        for number in range(20):
            pixels = random.integers(0, 256, (12, 16, 3), dtype=np.uint8)
            picture = Image.fromarray(pixels).resize((128, 96), Image.Resampling.BICUBIC)
            picture.save(folder / label / f"{number}.jpg")


def covid(folder: Path) -> None:
    """A Delta table of one version: counties, their states and counts by day."""
    random = np.random.default_rng(SEED)
    rows = 1000
    states = random.choice(["Washington", "Oregon", "Idaho"], rows)
    cases = random.integers(1, 5000, rows)
    frame = pd.DataFrame(
        {
            "date": [
                (_DELTA_TIME - timedelta(days=i // 10)).date().isoformat() for i in range(rows)
            ],
            "county": [f"County {number}" for number in random.integers(1, 40, rows)],
            "state": states,
            "fips": random.integers(16001, 53078, rows).astype("int32"),
            "cases": cases.astype("int32"),
            "deaths": (cases // 60).astype("int32"),
        }
    )
    data = folder / "part-00000-8e0aefe1-6645-4601-ac29-68cba64023b5-c000.snappy.parquet"
    (folder / "_delta_log").mkdir(parents=True, exist_ok=True)
    frame.to_parquet(data, index=False)
    log = folder / "_delta_log" / "00000000000000000000.json"
    milliseconds = int(_DELTA_TIME.timestamp() * 1000)
    log.write_text(
        "".join(json.dumps(line) + "\n" for line in _delta_log(frame, data, milliseconds))
    )
    os.utime(log, (milliseconds / 1000, milliseconds / 1000))


def _delta_log(frame: pd.DataFrame, data: Path, milliseconds: int) -> list[dict[str, object]]:
    """Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md"""
    types = {"object": "string", "int32": "integer"}
    columns = [
        {"name": name, "type": types[str(kind)], "nullable": True, "metadata": {}}
        for name, kind in frame.dtypes.items()
    ]
    return [
        {"commitInfo": {"timestamp": milliseconds, "operation": "WRITE", "isBlindAppend": True}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "4a0d4b9f-6b3e-4a4f-9d1c-5f7f7a0c9f0e",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": columns}),
                "partitionColumns": [],
                "configuration": {},
                "createdTime": milliseconds,
            }
        },
        {
            "add": {
                "path": data.name,
                "partitionValues": {},
                "size": data.stat().st_size,
                "modificationTime": milliseconds,
                "dataChange": True,
            }
        },
    ]


def taxis(folder: Path) -> None:
    """Trips of green taxis for each month of 2015 to 2019."""
    random = np.random.default_rng(SEED)
    for year in range(2015, 2020):
        for month in range(1, 13):
            part = folder / f"puYear={year}" / f"puMonth={month}"
            part.mkdir(parents=True, exist_ok=True)
            _trips(random, year, month, 2000).to_parquet(
                part / f"part-00{month:03}-tid-{year}-1.c000.snappy.parquet", index=False
            )


def _trips(random: np.random.Generator, year: int, month: int, rows: int) -> pd.DataFrame:
    start = pd.Timestamp(year, month, 1) + pd.to_timedelta(
        random.integers(0, 28 * 86400, rows), "s"
    )
    distance = random.exponential(3, rows).round(2)
    fare = (2.5 + 2.5 * distance).round(2)
    tip = (fare * random.choice([0, 0.1, 0.2], rows)).round(2)
    return pd.DataFrame(
        {
            "vendorID": random.integers(1, 3, rows).astype("int32"),
            "lpepPickupDatetime": start,
            "lpepDropoffDatetime": start + pd.to_timedelta((distance * 300).astype(int), "s"),
            "passengerCount": random.integers(1, 7, rows).astype("int32"),
            "tripDistance": distance,
            "puLocationId": random.integers(1, 266, rows).astype(str),
            "doLocationId": random.integers(1, 266, rows).astype(str),
            "pickupLongitude": random.uniform(-74.02, -73.76, rows),
            "pickupLatitude": random.uniform(40.6, 40.9, rows),
            "dropoffLongitude": random.uniform(-74.02, -73.76, rows),
            "dropoffLatitude": random.uniform(40.6, 40.9, rows),
            "rateCodeID": random.integers(1, 6, rows).astype("int32"),
            "storeAndFwdFlag": random.choice(["N", "Y"], rows, p=[0.99, 0.01]),
            "paymentType": random.integers(1, 3, rows).astype("int32"),
            "fareAmount": fare,
            "extra": random.choice([0.0, 0.5, 1.0], rows),
            "mtaTax": np.full(rows, 0.5),
            "improvementSurcharge": np.full(rows, "0.3"),
            "tipAmount": tip,
            "tollsAmount": np.zeros(rows),
            "ehailFee": np.full(rows, np.nan),
            "totalAmount": (fare + tip + 0.8).round(2),
            "tripType": random.integers(1, 3, rows).astype("int32"),
        }
    )


def digits(folder: Path) -> None:
    """MNIST's four files: scikit-learn's digits, enlarged and shifted; fewer than MNIST has."""
    random = np.random.default_rng(SEED)
    images, labels = datasets.load_digits(return_X_y=True)
    folder.mkdir(parents=True, exist_ok=True)
    half = len(images) * 4 // 5
    for name, first, last in (("train", 0, half), ("t10k", half, len(images))):
        chosen = random.integers(first, last, _MNIST_IMAGES[name])
        pictures = np.stack([_digit(random, images[number]) for number in chosen])
        sizes = np.array([2051, *pictures.shape], ">i4").tobytes()
        _zipped(folder / f"{name}-images-idx3-ubyte.gz", sizes + pictures.tobytes())
        header = np.array([2049, len(chosen)], ">i4").tobytes()
        _zipped(
            folder / f"{name}-labels-idx1-ubyte.gz",
            header + labels[chosen].astype(np.uint8).tobytes(),
        )


def _digit(random: np.random.Generator, image: np.ndarray) -> np.ndarray:
    """28 by 28 pixels, of which the digit takes 20 by 20."""
    small = Image.fromarray((image.reshape(8, 8) * 255 / 16).astype(np.uint8))
    picture = np.zeros((28, 28), np.uint8)
    top, left = random.integers(2, 7, 2)
    picture[top : top + 20, left : left + 20] = small.resize((20, 20), Image.Resampling.BICUBIC)
    return picture


def _zipped(file: Path, content: bytes) -> None:
    file.write_bytes(gzip.compress(content, mtime=0))


def diabetes(folder: Path) -> None:
    """scikit-learn's diabetes data, unscaled: what Azure's open data set holds."""
    data = datasets.load_diabetes(scaled=False)
    frame = pd.DataFrame(
        data.data, columns=["AGE", "SEX", "BMI", "BP", *(f"S{n}" for n in range(1, 7))]
    )
    frame = frame.astype({"AGE": "int64", "SEX": "int64", "S1": "int64"})
    frame["Y"] = data.target.astype("int64")
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(folder / "part-00000-diabetes.c000.snappy.parquet", index=False)


def attrition(file: Path) -> None:
    """490 employees, zipped as `WA_Fn-UseC_-HR-Employee-Attrition.csv`; the real file has 1470."""
    random = np.random.default_rng(SEED)
    rows = 490
    numbers = {
        "DailyRate": (102, 1500), "DistanceFromHome": (1, 30), "Education": (1, 6),
        "EnvironmentSatisfaction": (1, 5), "HourlyRate": (30, 101), "JobInvolvement": (1, 5),
        "JobLevel": (1, 6), "JobSatisfaction": (1, 5), "MonthlyIncome": (1009, 20000),
        "MonthlyRate": (2094, 27000), "NumCompaniesWorked": (0, 10), "PercentSalaryHike": (11, 26),
        "PerformanceRating": (3, 5), "RelationshipSatisfaction": (1, 5), "StockOptionLevel": (0, 4),
        "TotalWorkingYears": (0, 41), "TrainingTimesLastYear": (0, 7), "WorkLifeBalance": (1, 5),
        "YearsAtCompany": (0, 41), "YearsInCurrentRole": (0, 19), "YearsWithCurrManager": (0, 18),
        "YearsSinceLastPromotion": (0, 16),
    }  # fmt: skip
    words = {
        "BusinessTravel": ["Non-Travel", "Travel_Frequently", "Travel_Rarely"],
        "Department": ["Human Resources", "Research & Development", "Sales"],
        "EducationField": ["Life Sciences", "Medical", "Marketing", "Technical Degree", "Other"],
        "Gender": ["Female", "Male"],
        "JobRole": ["Manager", "Research Scientist", "Sales Executive", "Human Resources"],
        "MaritalStatus": ["Divorced", "Married", "Single"],
        "OverTime": ["No", "Yes"],
    }
    columns: dict[str, object] = {"Age": random.integers(18, 61, rows)}
    columns |= {name: random.integers(*limits, rows) for name, limits in numbers.items()}
    columns |= {name: random.choice(choices, rows) for name, choices in words.items()}
    columns |= {"EmployeeCount": 1, "EmployeeNumber": range(1, rows + 1), "Over18": "Y"}
    columns["StandardHours"] = 80
    frame = pd.DataFrame(columns)
    risk = (frame["OverTime"] == "Yes") * 1.0 - frame["JobLevel"] / 4 + random.normal(0, 1, rows)
    frame.insert(1, "Attrition", np.where(risk > 0.8, "Yes", "No"))
    text = io.StringIO()
    frame.to_csv(text, index=False)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("WA_Fn-UseC_-HR-Employee-Attrition.csv", text.getvalue())


def keras_digits(file: Path) -> None:
    """MNIST as Keras has it; its hash is not the real one's."""
    random = np.random.default_rng(SEED)
    source = datasets.load_digits()
    arrays: dict[str, Any] = {}
    for part, count in (("train", _MNIST_IMAGES["train"]), ("test", _MNIST_IMAGES["t10k"])):
        rows = random.integers(0, len(source.data), count)
        arrays[f"x_{part}"] = np.stack([_digit(random, source.data[row]) for row in rows])
        arrays[f"y_{part}"] = source.target[rows].astype(np.uint8)
    np.savez_compressed(file, **arrays)


def cifar(file: Path, training_pictures: int = 240) -> None:
    """CIFAR-10's archive with fewer pictures, one colour per label.

    Scripts expect full batches of 16 of its test set, and 10000 is a multiple of 16, too.

    Args:
        training_pictures: in each of its five batches for training; the one for testing has 240.
    """
    random = np.random.default_rng(SEED)
    labels = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship",
              "truck"]  # fmt: skip
    colors = random.integers(40, 216, (len(labels), 3, 1))
    meta = {"num_cases_per_batch": training_pictures, "label_names": labels, "num_vis": 3072}
    with tarfile.open(file, "w:gz") as archive:
        _add_pickle(archive, "batches.meta", meta)
        for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
            pictures = 240 if name == "test_batch" else training_pictures
            drawn = random.integers(0, len(labels), pictures)
            noise = random.integers(-40, 40, (pictures, 3, 1024))
            batch = {
                "batch_label": name,
                "labels": drawn.tolist(),
                "data": (colors[drawn] + noise).astype(np.uint8).reshape(pictures, 3072),
                "filenames": [f"{labels[label]}_{row}.png" for row, label in enumerate(drawn)],
            }
            _add_pickle(archive, name, batch)


def _add_pickle(archive: tarfile.TarFile, name: str, document: dict[str, object]) -> None:
    content = pickle.dumps(document, protocol=2)
    member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def houses(file: Path) -> None:
    """California housing where scikit-learn keeps it once it has been downloaded.

    Columns: MedHouseVal, MedInc, HouseAge, AveRooms and AveBedrms times AveOccup's households,
    population, households, Latitude, Longitude.
    """
    random = np.random.default_rng(SEED)
    rows = 2000
    households = random.integers(100, 900, rows).astype(float)
    income = random.gamma(4, 1, rows)
    columns = (
        (40000 * income + random.normal(0, 20000, rows)).clip(15000, 500001),
        income, random.integers(1, 53, rows), households * random.uniform(4, 7, rows),
        households * random.uniform(0.9, 1.3, rows), households * random.uniform(2, 4, rows),
        households, random.uniform(32.5, 42, rows), random.uniform(-124, -114, rows),
    )  # fmt: skip
    joblib.dump(np.column_stack(columns), file, compress=6)


def private_wheel(file: Path) -> None:
    """A wheel of one empty module, named by the file."""
    name, version = file.name.split("-")[:2]
    info = f"{name}-{version}.dist-info"
    texts = {
        f"{name}.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    texts[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*texts, f"{info}/RECORD"))
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in texts.items():
            archive.writestr(path, text)


def fowl(file: Path) -> None:
    """Pictures of two kinds of birds, in one folder each for training and validation."""
    random = np.random.default_rng(SEED)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("fowl_data/", "")
        for part, count in (("train", 4), ("val", 2)):
            for number, kind in enumerate(("chickens", "turkeys")):
                for picture in range(count):
                    pixels = random.integers(0, 128, (8, 8, 3), dtype=np.uint8) + 127 * number
                    large = Image.fromarray(pixels.astype(np.uint8)).resize((256, 256))
                    content = io.BytesIO()
                    large.save(content, "JPEG")
                    name = f"fowl_data/{part}/{kind}/{picture}.jpg"
                    archive.writestr(name, content.getvalue())


def resnet18(file: Path) -> None:
    """Weights drawn at random, of the names and forms that torchvision expects.

    Source: the format of torch.save, https://pytorch.org/docs/stable/notes/serialization.html
    """
    random = np.random.default_rng(SEED)
    forms: dict[str, tuple[int, ...]] = {"conv1.weight": (64, 3, 7, 7)}
    _norm(forms, "bn1", 64)
    for layer, width in enumerate((64, 128, 256, 512), 1):
        for block in range(2):
            before = width if block or layer == 1 else width // 2
            name = f"layer{layer}.{block}"
            for number, channels in ((1, before), (2, width)):
                forms[f"{name}.conv{number}.weight"] = (width, channels, 3, 3)
                _norm(forms, f"{name}.bn{number}", width)
            if before != width:
                forms[f"{name}.downsample.0.weight"] = (width, before, 1, 1)
                _norm(forms, f"{name}.downsample.1", width)
    forms |= {"fc.weight": (1000, 512), "fc.bias": (1000,)}
    arrays = {}
    for name, form in forms.items():
        scale = (2 / np.prod(form[1:])) ** 0.5 if len(form) > 1 else 0.0
        values = random.normal(0, scale, form) if scale else np.zeros(form)
        is_one = name.endswith("running_var") or (len(form) == 1 and name.endswith("weight"))
        arrays[name] = (np.ones(form) if is_one else values).astype("<f4")
    _save_tensors(file, arrays)


def _norm(forms: dict[str, tuple[int, ...]], name: str, width: int) -> None:
    for part in ("weight", "bias", "running_mean", "running_var"):
        forms[f"{name}.{part}"] = (width,)


def _save_tensors(file: Path, arrays: dict[str, Any]) -> None:
    """What torch.save writes of a mapping of tensors; written here without torch."""
    torch, utils = ModuleType("torch"), ModuleType("torch._utils")
    storage = type("FloatStorage", (), {"__module__": "torch"})

    def _rebuild_tensor_v2() -> None:
        """Only its name is written."""

    _rebuild_tensor_v2.__module__ = "torch._utils"
    _rebuild_tensor_v2.__qualname__ = "_rebuild_tensor_v2"
    setattr(torch, "FloatStorage", storage)  # noqa: B010
    setattr(utils, "_rebuild_tensor_v2", _rebuild_tensor_v2)  # noqa: B010

    class Tensor:
        def __init__(self, key: str, array: Any) -> None:
            self.key, self.array = key, array

        def __reduce__(self) -> Any:
            strides = tuple(step // 4 for step in self.array.strides)
            content = (_Stored(self.key, self.array.size), 0, self.array.shape, strides)
            return _rebuild_tensor_v2, (*content, False, OrderedDict())

    class Pickler(pickle.Pickler):
        def persistent_id(self, item: Any) -> Any:
            if isinstance(item, _Stored):
                return ("storage", storage, item.key, "cpu", item.size)
            return None

    with (
        patch.dict(sys.modules, {"torch": torch, "torch._utils": utils}),
        zipfile.ZipFile(file, "w") as archive,
    ):
        tensors = {name: Tensor(str(key), arrays[name]) for key, name in enumerate(arrays)}
        content = io.BytesIO()
        Pickler(content, protocol=2).dump(OrderedDict(tensors))
        archive.writestr("archive/data.pkl", content.getvalue())
        archive.writestr("archive/byteorder", "little")
        for tensor in tensors.values():
            archive.writestr(f"archive/data/{tensor.key}", tensor.array.tobytes())
        archive.writestr("archive/version", "3\n")


@dataclass(frozen=True)
class _Stored:
    """A tensor's numbers, which lie in a file of their own."""

    key: str
    size: int


_PRIVATE = "privatewheels.blob.core.windows.net/wheels"

MAKERS: dict[str, Callable[[Path], None]] = {
    f"{_EXAMPLE_DATA}/data/pet-images": pets,
    f"{_EXAMPLE_DATA}/data/COVID-19_NYT": covid,
    f"{_OPEN_DATA}/nyctlc/green": taxis,
    f"{_OPEN_DATA}/mnist": digits,
    "yann.lecun.com/exdb/mnist": digits,
    f"{_OPEN_DATA}/mlsamples/diabetes": diabetes,
    f"{_OPEN_DATA_CACHE}/mlsamples/diabetes": diabetes,
    f"{_OPEN_DATA_CACHE}/mnist": digits,
    "storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz": keras_digits,
    "www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz": cifar,
    "azuremlexamples.blob.core.windows.net/datasets/cifar-10-python.tar.gz": cifar,
    "scikit_learn_data/cal_housing_py3.pkz": houses,
    f"{_PRIVATE}/private_one-1.0-py3-none-any.whl": private_wheel,
    f"{_PRIVATE}/private_two-1.0-py3-none-any.whl": private_wheel,
    "azuremlexamples.blob.core.windows.net/datasets/fowl_data.zip": fowl,
    "download.pytorch.org/models/resnet18-f37072fd.pth": resnet18,
    "publictestdatasets.blob.core.windows.net/data/dataset.6.21.19.zip": attrition,
}


def main(arguments: list[str]) -> None:
    top = Path(arguments[0])
    for path, make in MAKERS.items():
        target = top / path
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            make(target)


if __name__ == "__main__":
    main(sys.argv[1:])
