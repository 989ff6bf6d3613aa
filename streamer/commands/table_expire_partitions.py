"""``lakemark table expire-partitions``: deletes the partitions whose lifetime has ended."""

from __future__ import annotations

import argparse

from lakemark.operations.partition_expiry import find_expired
from lakemark.services.partition_lifetime import ExpireBy, PartitionLifetime
from streamer.commands.service_table import open_for_service
from streamer.commands.table_delete_partitions import delete_chosen


def execute(arguments: argparse.Namespace) -> int:
    """Print the partitions whose lifetime has ended, or delete them.

    Raises:
        InvalidConfig: the lifetime is not positive, or the table is not partitioned.
        HudiError: the table cannot be read or written.
    """
    table = open_for_service(arguments, arguments.merger)
    lifetime = PartitionLifetime(arguments.older_than, ExpireBy(arguments.by))
    delete_chosen(table, find_expired(table, lifetime), arguments)
    return 0
