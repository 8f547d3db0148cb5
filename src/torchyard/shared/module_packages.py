"""Modules whose package has another name.

Owns: the table.
Leaves: what is said of a missing module to worker/diagnosis/, of a requirement to environments/.
Always: a name in `NO_PACKAGES` is a key of `PACKAGES`, and installs nothing that works.
"""

from __future__ import annotations

from collections.abc import Mapping

PACKAGES: Mapping[str, str] = {
    "PIL": "pillow",
    "attr": "attrs",
    "azure.ai.ml": "azure-ai-ml",
    "azure.identity": "azure-identity",
    "azure.storage.blob": "azure-storage-blob",
    "azureml.core": "azureml-core",
    "azureml.data": "azureml-core",
    "azureml.dataprep": "azureml-dataset-runtime",
    "azureml.fsspec": "azureml-fsspec",
    "azureml.mlflow": "azureml-mlflow",
    "azureml": "azureml-core",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "git": "GitPython",
    "google.protobuf": "protobuf",
    "lightning_fabric": "lightning",
    "pkg_resources": "setuptools<81",
    "pytorch_lightning": "pytorch-lightning",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
}

# On PyPI there is nothing under these names, or something else.
NO_PACKAGES = frozenset({"PIL", "cv2", "dateutil", "dotenv", "faiss", "skimage", "sklearn", "yaml"})
