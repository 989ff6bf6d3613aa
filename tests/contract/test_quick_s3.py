"""The quick S3 server of the tests passes the same contract tests as moto.

Tests of large files are omitted, because it does not support multipart uploads.
"""

from __future__ import annotations

import pytest

from lakemark.storage import StorageLocation
from tests.contract.test_storage import (
    test_create_never_replaces_an_object,
    test_created_object_has_the_written_content,
    test_either_the_publisher_or_the_deleter_wins,
    test_every_path_in_the_contract_can_be_used,
    test_folder_disappears_with_its_last_object,
    test_folder_of_any_name_is_listed,
    test_folders_are_distinguished_from_objects,
    test_no_replacement_is_lost,
    test_nothing_is_published_after_the_prepared_object_was_deleted,
    test_only_one_of_many_creators_succeeds,
    test_parquet_is_written_to_and_read_from_the_store,
    test_path_outside_the_root_is_refused,
    test_probe_passes_and_leaves_no_object,
    test_publishing_creates_the_object_once,
    test_publishing_never_replaces_an_object,
    test_put_replaces_an_object,
    test_random_reads_return_the_written_bytes,
    test_replace_succeeds_only_for_the_version_that_was_read,
    test_storage_behaves_like_a_dict_of_paths,
)
from tests.fixtures.quick_s3 import QuickS3

__all__ = [
    "test_create_never_replaces_an_object",
    "test_created_object_has_the_written_content",
    "test_either_the_publisher_or_the_deleter_wins",
    "test_every_path_in_the_contract_can_be_used",
    "test_folder_disappears_with_its_last_object",
    "test_folder_of_any_name_is_listed",
    "test_folders_are_distinguished_from_objects",
    "test_no_replacement_is_lost",
    "test_nothing_is_published_after_the_prepared_object_was_deleted",
    "test_only_one_of_many_creators_succeeds",
    "test_parquet_is_written_to_and_read_from_the_store",
    "test_path_outside_the_root_is_refused",
    "test_probe_passes_and_leaves_no_object",
    "test_publishing_creates_the_object_once",
    "test_publishing_never_replaces_an_object",
    "test_put_replaces_an_object",
    "test_random_reads_return_the_written_bytes",
    "test_replace_succeeds_only_for_the_version_that_was_read",
    "test_storage_behaves_like_a_dict_of_paths",
]


@pytest.fixture
def storage_location(quick_s3: QuickS3) -> StorageLocation:
    return quick_s3.location()
