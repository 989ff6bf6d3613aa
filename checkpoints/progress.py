"""The progress of each streamer of a table, which every commit of this project records.

Several streamers may write one table, each with its own identity. The default streamer, whose
identity is "", also records its checkpoint under the keys of Apache Hudi's streamer
(``commit_keys``). A commit of a streamer or of a table service copies the progress of the other
streamers. So no streamer depends on how long its own last commit stays in the active timeline.

A copy may be older than a later commit of that streamer. Each entry therefore has the time as of
which it is true, and the latest entry counts, whichever commit records it.

The progress is stored as JSON under ``lakemark.checkpoints``::

    {"as_of": time, "streamers": {identity: {"checkpoint": text or null, "commit": time,
     "known_at": time, "topic_id": text, "obeyed": {key: text}}}}

A key whose value would be empty is omitted. ``checkpoint`` is null if it was reset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from checkpoints import commit_keys
from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.config import keys
from lakemark.errors import InvalidConfig
from lakemark.model.instant import Instant

#: Identity of the streamer that shares its checkpoint with Apache Hudi's streamer.
DEFAULT_IDENTITY = ""
#: The identities that are accepted.
IDENTITY_PATTERN = r"[A-Za-z0-9._-]{0,249}"


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of one streamer.

    Attributes:
        checkpoint: the next offset of each partition; None if it was reset.
        commit: requested time of the commit that made this progress.
        known_at: completion time of that commit. It is "" in the commit itself, which is written
            before it has a completion time.
        topic_id: Kafka's id of the topic, which a topic created again under the same name does not
            have; "" if it is not known.
        key: the key of the commit's extra metadata.
        applied: the options that Apache Hudi's streamer has recorded with its checkpoint.
    """

    checkpoint: KafkaCheckpoint | None
    commit: str
    known_at: str = ""
    topic_id: str = ""
    key: str = keys.CHECKPOINTS
    applied: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableProgress:
    """The progress of all streamers, as one commit records it.

    Attributes:
        streamers: progress by identity.
        as_of: a completion time; the progress covers all commits that completed up to then.
    """

    streamers: Mapping[str, Progress] = field(default_factory=dict)
    as_of: str = ""

    def with_progress(self, identity: str, progress: Progress) -> TableProgress:
        """Replace the progress of one streamer."""
        return replace(self, streamers={**self.streamers, identity: progress})


def check_identity(identity: str) -> None:
    """Check the identity of a streamer.

    Raises:
        InvalidConfig: it has characters that the name of a Kafka topic may not have, or more than
            249 characters.
    """
    if re.fullmatch(IDENTITY_PATTERN, identity) is None:
        message = (
            f"source.checkpoint_id {identity!r}: expected at most 249 letters, digits, '.', '_' "
            "and '-'"
        )
        raise InvalidConfig(message)


def encode_progress(known: TableProgress, identity: str) -> dict[str, str]:
    """Encode the extra metadata of a commit that the streamer ``identity`` makes.

    The default streamer also writes its checkpoint under Apache Hudi's key, unless it was reset.
    """
    streamers = {name: _to_json(progress) for name, progress in sorted(known.streamers.items())}
    text = json.dumps({"as_of": known.as_of, "streamers": streamers}, separators=(",", ":"))
    extra = {keys.CHECKPOINTS: text}
    own = known.streamers[identity]
    if identity == DEFAULT_IDENTITY and own.checkpoint is not None:
        return {**own.applied, **commit_keys.encode(own.checkpoint), **extra}
    return extra


def decode_progress(
    extra_metadata: Mapping[str, str], instant: Instant, known_at: str
) -> TableProgress:
    """Decode the progress that a completed commit records.

    Args:
        extra_metadata: of the commit.
        instant: the commit.
        known_at: the time as of which a checkpoint under Apache Hudi's keys is true.

    Raises:
        DamagedCheckpoint: a value cannot be read.
    """
    recorded = _parse(extra_metadata.get(keys.CHECKPOINTS), instant)
    key = commit_keys.checkpoint_key(extra_metadata)
    if key is None:
        return recorded
    checkpoint = commit_keys.parse_checkpoint(instant.requested_at, key, extra_metadata[key])
    own = recorded.streamers.get(DEFAULT_IDENTITY)
    if own is not None and own.checkpoint == checkpoint:
        return recorded.with_progress(DEFAULT_IDENTITY, replace(own, key=key))
    applied = commit_keys.applied_options(extra_metadata)
    progress = Progress(checkpoint, instant.requested_at, known_at, key=key, applied=applied)
    return recorded.with_progress(DEFAULT_IDENTITY, progress)


def _to_json(progress: Progress) -> dict[str, object]:
    checkpoint = progress.checkpoint
    fields = {
        "commit": progress.commit,
        "known_at": progress.known_at,
        "topic_id": progress.topic_id,
        "obeyed": dict(progress.applied),
    }
    known = {name: value for name, value in fields.items() if value}
    return {"checkpoint": None if checkpoint is None else str(checkpoint), **known}


def _parse(text: str | None, instant: Instant) -> TableProgress:
    if text is None:
        return TableProgress()
    try:
        parsed = json.loads(text)
        streamers = {str(n): _from_json(entry, instant) for n, entry in parsed["streamers"].items()}
        return TableProgress(streamers, str(parsed["as_of"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise commit_keys.DamagedCheckpoint(instant.requested_at, keys.CHECKPOINTS, text) from error


def _from_json(entry: Mapping[str, Any], instant: Instant) -> Progress:
    text, commit = entry["checkpoint"], str(entry["commit"])
    is_own = commit == instant.requested_at
    # A copied entry without a completion time: the commit completed after it was requested.
    known_at = instant.completed_at or "" if is_own else str(entry.get("known_at") or commit)
    return Progress(
        None if text is None else KafkaCheckpoint.parse(text),
        commit,
        known_at,
        str(entry.get("topic_id", "")),
        applied={str(k): str(v) for k, v in entry.get("obeyed", {}).items()},
    )
