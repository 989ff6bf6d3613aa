"""Sets the servers of the contract suites: moto for S3, and emulators of GCS and Azure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakemark.storage import StorageLocation
from tests.fixtures.storage import EMULATED_KINDS, STORAGE_KINDS

if TYPE_CHECKING:
    from tests.fixtures.s3 import S3Server


@pytest.fixture(params=(*STORAGE_KINDS, *EMULATED_KINDS))
def storage_kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture
def s3_location(s3_server: S3Server) -> StorageLocation:
    return s3_server.location()
