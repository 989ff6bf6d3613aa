"""The progress of each streamer of a table, as recorded in the table's commits.

``lakemark.transaction.streamer_progress`` describes the format, and which entry counts. This module
uses it with the positions of sources.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

from checkpoints import commit_keys
from checkpoints.position import Position
from lakemark.errors import InvalidConfig
from lakemark.model.instant import Instant
from lakemark.transaction import streamer_progress
from lakemark.transaction.streamer_progress import (
    DEFAULT_IDENTITY,
    StreamerProgress,
    encode_table_progress,
)

#: The pattern of accepted identities of streamers.
IDENTITY_PATTERN = r"[A-Za-z0-9._-]{0,249}"

#: How far one streamer has read.
Progress: TypeAlias = StreamerProgress[Position]

#: The progress of all streamers that one commit records.
TableProgress: TypeAlias = streamer_progress.TableProgress[Position]


def check_identity(identity: str) -> None:
    """Check the identity of a streamer.

    Raises:
        InvalidConfig: the identity has characters that a Kafka topic name may not have, or more
            than 249 characters.
    """
    if re.fullmatch(IDENTITY_PATTERN, identity) is None:
        message = (
            f"source.checkpoint_id {identity!r}: expected at most 249 letters, digits, '.', '_' "
            "and '-'"
        )
        raise InvalidConfig(message)


def encode_progress(known: TableProgress, identity: str) -> dict[str, str]:
    """Encode the extra metadata of a commit that the streamer ``identity`` makes.

    The default streamer also writes its checkpoint under Apache Hudi's key, unless it was reset or
    Apache Hudi could not continue at it.
    """
    extra = encode_table_progress(known)
    own = known.streamers[identity]
    checkpoint = own.checkpoint if identity == DEFAULT_IDENTITY else None
    if checkpoint is not None and checkpoint.is_known_to_apache:
        return {**own.applied, **commit_keys.encode(checkpoint), **extra}
    return extra


def decode_progress(
    extra_metadata: Mapping[str, str], instant: Instant, known_at: str
) -> TableProgress:
    """Decode the progress that a completed commit records.

    Raises:
        DamagedCheckpoint: a value cannot be read.
    """
    parse = commit_keys.parse_text
    return streamer_progress.decode_progress(extra_metadata, instant, known_at, parse)
