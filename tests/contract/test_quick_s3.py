"""The small S3 of the tests keeps the contract of a storage, as moto's does: the same tests ask it.

It takes no upload in parts, so those of large files are left out.
"""

from __future__ import annotations

import pytest

from lakemark.storage import StorageLocation
from tests.contract.test_storage import (
    test_a_folder_goes_with_its_last_object,
    test_a_folder_is_listed_whatever_its_name,
    test_a_path_outside_the_root_is_refused,
    test_a_storage_is_a_dict_of_paths,
    test_create_never_replaces,
    test_either_the_publisher_or_the_deleter_wins,
    test_every_path_in_the_contract_can_be_used,
    test_folders_are_distinguished_from_objects,
    test_no_replacement_is_lost,
    test_nothing_is_published_after_the_prepared_object_was_deleted,
    test_of_many_creators_one_succeeds,
    test_parquet_is_written_to_and_read_from_the_store,
    test_publishing_makes_the_object_once,
    test_publishing_never_replaces,
    test_put_replaces,
    test_reading_at_random_agrees_with_the_bytes,
    test_replace_takes_exactly_the_version_that_was_read,
    test_the_probe_passes_and_leaves_nothing,
    test_what_was_created_is_there_as_it_was_written,
)
from tests.fixtures.quick_s3 import QuickS3

__all__ = [
    "test_a_folder_goes_with_its_last_object",
    "test_a_folder_is_listed_whatever_its_name",
    "test_a_path_outside_the_root_is_refused",
    "test_a_storage_is_a_dict_of_paths",
    "test_create_never_replaces",
    "test_either_the_publisher_or_the_deleter_wins",
    "test_every_path_in_the_contract_can_be_used",
    "test_folders_are_distinguished_from_objects",
    "test_no_replacement_is_lost",
    "test_nothing_is_published_after_the_prepared_object_was_deleted",
    "test_of_many_creators_one_succeeds",
    "test_parquet_is_written_to_and_read_from_the_store",
    "test_publishing_makes_the_object_once",
    "test_publishing_never_replaces",
    "test_put_replaces",
    "test_reading_at_random_agrees_with_the_bytes",
    "test_replace_takes_exactly_the_version_that_was_read",
    "test_the_probe_passes_and_leaves_nothing",
    "test_what_was_created_is_there_as_it_was_written",
]


@pytest.fixture
def storage_location(quick_s3: QuickS3) -> StorageLocation:
    return quick_s3.location()
