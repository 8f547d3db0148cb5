"""Which versions don't work together though their metadata allow it.

Owns: the tables of such versions, and the limits that keep them apart.
Leaves: resolving with these limits to lock.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

NUMPY_1 = "numpy<2"
# The first version of each that works with NumPy 2. Earlier ones were compiled for NumPy 1, or use
# names that NumPy 2 removed, and their metadata allow any. Conda chooses NumPy 1 for them.
FOR_NUMPY_2 = {
    "bottleneck": (1, 4),
    "catboost": (1, 2, 7),
    "cftime": (1, 6, 4),
    "faiss-cpu": (1, 8, 0),
    "fastparquet": (2024, 5),
    "gensim": (4, 3, 3),
    "h5py": (3, 11),
    "matplotlib": (3, 8, 4),
    "netcdf4": (1, 7),
    "numba": (0, 60),
    "numexpr": (2, 10),
    "onnxruntime": (1, 19),
    "onnxruntime-gpu": (1, 19),
    "opencv-contrib-python": (4, 10, 0, 84),
    "opencv-contrib-python-headless": (4, 10, 0, 84),
    "opencv-python": (4, 10, 0, 84),
    "opencv-python-headless": (4, 10, 0, 84),
    "pandas": (2, 2, 2),
    "pyarrow": (16,),
    "pycocotools": (2, 0, 8),
    "pytables": (3, 10),
    "pywavelets": (1, 5),
    "rasterio": (1, 3, 10),
    "scikit-image": (0, 23),
    "scikit-learn": (1, 4, 2),
    "scipy": (1, 13),
    "shap": (0, 46),
    "spacy": (3, 8),
    "statsmodels": (0, 14, 2),
    "tables": (3, 10),
    "thinc": (8, 3),
    "torch": (2, 3),
    "wandb": (0, 17, 4),
    "xarray": (2023, 12),
}
# What releases need and their metadata don't say: (package, from which version on, what it needs,
# from which version on, the limit of the package where that can't be had).
_TOO_OLD = (
    # Its store imports `mlflow.utils.async_logging`; no such MLflow runs on Python 3.7.
    ("azureml-mlflow", (1, 55), "mlflow-skinny", (2, 8), "azureml-mlflow<1.55"),
)
# What releases are too old for: (package, before which version, what is too new for it, from which
# version on, the limit of that).
_TOO_NEW = (
    # Its store of databases imports a pool that SQLAlchemy 2.1 removed.
    ("mlflow", (3, 9), "sqlalchemy", (2, 1), "sqlalchemy<2.1"),
    # The code that was generated for them is refused by protobuf 4.
    ("mlflow", (1, 27), "protobuf", (3, 21), "protobuf<3.21"),
    ("mlflow-skinny", (1, 27), "protobuf", (3, 21), "protobuf<3.21"),
    # They use names that NumPy 1.24 removed.
    ("mlflow", (1, 25), "numpy", (1, 24), "numpy<1.24"),
    ("mlflow-skinny", (1, 25), "numpy", (1, 24), "numpy<1.24"),
    # It takes a file's URI alone, and MLflow 3.1 hands over another one with it.
    ("azureml-mlflow", (1, 61), "mlflow-skinny", (3, 1), "mlflow-skinny<3.1"),
    # It imports `pkg_resources`, which setuptools 82 removed.
    ("gunicorn", (21,), "setuptools", (82,), "setuptools<82"),
    # It holds the modules of mlflow-skinny itself, which another package would replace in part.
    ("mlflow", (2, 0), "mlflow-skinny", (2, 0), "mlflow-skinny<2"),
    *((package, first, "numpy", (2,), NUMPY_1) for package, first in FOR_NUMPY_2.items()),
)


def of(versions: Mapping[str, str]) -> dict[str, str]:
    """The limits that a lock's versions break though no metadata say so, each with its reason."""
    limits = {
        limit: f"{package} {versions[package]} does not work with {needed} {versions[needed]}"
        for package, since, needed, oldest, limit in _TOO_OLD
        if _release(versions.get(package, "")) >= since
        and () < _release(versions.get(needed, "")) < oldest
    }
    for package, before, needed, newest, limit in _TOO_NEW:
        is_old = () < _release(versions.get(package, "")) < before
        if is_old and _release(versions.get(needed, "")) >= newest:
            reason = f"{package} {versions[package]} does not work with {needed} {versions[needed]}"
            limits.setdefault(limit, reason)
    return limits


def _release(version: str) -> tuple[int, ...]:
    """The numbers with which a version begins; empty for none, and for a URL."""
    match = re.match(r"\d+(?:\.\d+)*", version, re.ASCII)
    return tuple(int(number) for number in match[0].split(".")) if match else ()
