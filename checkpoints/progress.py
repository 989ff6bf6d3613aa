"""How far each streamer of a table has read Kafka, as the table's commits record it.

``lakemark.transaction.streamer_progress`` describes the format and which entry counts. Here the
checkpoints have the type of Kafka's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

from checkpoints import commit_keys
from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.errors import InvalidConfig
from lakemark.model.instant import Instant
from lakemark.transaction import streamer_progress
from lakemark.transaction.streamer_progress import (
    DEFAULT_IDENTITY,
    StreamerProgress,
    encode_table_progress,
)

#: What an identity may be.
IDENTITY_PATTERN = r"[A-Za-z0-9._-]{0,249}"

#: How far one streamer has read.
Progress: TypeAlias = StreamerProgress[KafkaCheckpoint]

#: What one commit records of all streamers.
TableProgress: TypeAlias = streamer_progress.TableProgress[KafkaCheckpoint]


def check_identity(identity: str) -> None:
    """Pass if a streamer may have this identity.

    Raises:
        InvalidConfig: it has characters that a Kafka topic's name cannot have, or more than 249.
    """
    if re.fullmatch(IDENTITY_PATTERN, identity) is None:
        message = (
            f"{identity!r} is no source.checkpoint_id; expected letters, digits, '.', '_' and "
            "'-', 249 of them at most"
        )
        raise InvalidConfig(message)


def encode_progress(known: TableProgress, identity: str) -> dict[str, str]:
    """The extra metadata of a commit by the streamer ``identity``.

    A commit of the default streamer also has the checkpoint under Apache Hudi's key, unless the
    streamer was reset.
    """
    extra = encode_table_progress(known)
    own = known.streamers[identity]
    if identity == DEFAULT_IDENTITY and own.checkpoint is not None:
        return {**own.applied, **commit_keys.encode(own.checkpoint), **extra}
    return extra


def decode_progress(
    extra_metadata: Mapping[str, str], instant: Instant, known_at: str
) -> TableProgress:
    """What a completed commit records; see ``streamer_progress.decode_progress``."""
    parse = commit_keys.parse_text
    return streamer_progress.decode_progress(extra_metadata, instant, known_at, parse)
