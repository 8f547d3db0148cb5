"""What route functions receive of this package by FastAPI's `Depends`; see base/dependencies.py."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from torchyard.base.dependencies import from_state
from torchyard.data.datastores import Datastores
from torchyard.data.fetching import Fetcher

DatastoresOf = Annotated[Datastores, Depends(from_state("datastores"))]
FetcherOf = Annotated[Fetcher, Depends(from_state("fetcher"))]
