"""The contract suites hold an S3 server that others wrote against the quick one of the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakemark.storage import StorageLocation

if TYPE_CHECKING:
    from tests.fixtures.s3 import S3Server


@pytest.fixture
def s3_location(s3_server: S3Server) -> StorageLocation:
    return s3_server.location()
