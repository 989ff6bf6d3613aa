"""How far each streamer of a table has read; every commit of ours carries all that is known.

Several streamers may write one table, each under an identity of its own. The default one, whose
identity is "", keeps its checkpoint where Apache Hudi's streamer does as well (``codec``). A commit
of one streamer, or of a service, takes over what the others have read: so none of them depends on
how long its own last commit stays in the active timeline.

What is taken over may be older than what the other has committed meanwhile. Each entry therefore
says when it was true, and the latest counts, whichever commit tells it.

As JSON under ``lakemark.checkpoints``::

    {"as_of": time, "streamers": {identity: {"checkpoint": text or null, "commit": time,
     "known_at": time, "topic_id": text, "obeyed": {key: text}}}}

A key whose value would be empty is left out; ``checkpoint`` is null where it was reset.
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

#: Identity of the streamer that shares its checkpoint with Apache Hudi's.
DEFAULT_IDENTITY = ""
#: What an identity may be.
IDENTITY_PATTERN = r"[A-Za-z0-9._-]{0,249}"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one streamer has read.

    Attributes:
        checkpoint: the next offset of each partition; None when it was reset.
        commit: requested time of the commit that made it so.
        known_at: since when it is so, as a time of the timeline; "" in the commit that makes it so,
            which does not know its own completion time.
        topic_id: by which Kafka knows this very topic, and no other of its name; "" when unknown.
        key: which key of the commit kept it.
        applied: what Apache Hudi's streamer keeps beside its checkpoint.
    """

    checkpoint: KafkaCheckpoint | None
    commit: str
    known_at: str = ""
    topic_id: str = ""
    key: str = keys.CHECKPOINTS
    applied: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableProgress:
    """What one commit tells of all streamers.

    Attributes:
        streamers: by identity.
        as_of: all that was completed up to then is in it, as a completion time.
    """

    streamers: Mapping[str, Progress] = field(default_factory=dict)
    as_of: str = ""

    def with_progress(self, identity: str, progress: Progress) -> TableProgress:
        """The same after a step of one streamer, or its reset."""
        return replace(self, streamers={**self.streamers, identity: progress})


def check_identity(identity: str) -> None:
    """Pass when a streamer may be called so.

    Raises:
        InvalidConfig: other signs than those of a Kafka topic, or more than 249 of them.
    """
    if re.fullmatch(IDENTITY_PATTERN, identity) is None:
        message = (
            f"{identity!r} is no source.checkpoint_id; expected letters, digits, '.', '_' and "
            "'-', 249 of them at most"
        )
        raise InvalidConfig(message)


def encode_progress(known: TableProgress, identity: str) -> dict[str, str]:
    """The extra metadata of a commit that the streamer ``identity`` makes.

    The default one's has the checkpoint under Apache Hudi's key, too, unless it was reset.
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
    """What a completed commit tells.

    Args:
        extra_metadata: of the commit.
        instant: the commit.
        known_at: when a checkpoint under Apache Hudi's keys was true.

    Raises:
        DamagedCheckpoint: something in it cannot be read.
    """
    book = _parsed(extra_metadata.get(keys.CHECKPOINTS), instant)
    key = commit_keys.checkpoint_key(extra_metadata)
    if key is None:
        return book
    checkpoint = commit_keys.parse(instant.requested_at, key, extra_metadata[key])
    told = book.streamers.get(DEFAULT_IDENTITY)
    if told is not None and told.checkpoint == checkpoint:
        return book.with_progress(DEFAULT_IDENTITY, replace(told, key=key))
    applied = commit_keys.applied(extra_metadata)
    progress = Progress(checkpoint, instant.requested_at, known_at, key=key, applied=applied)
    return book.with_progress(DEFAULT_IDENTITY, progress)


def _to_json(progress: Progress) -> dict[str, object]:
    checkpoint = progress.checkpoint
    told = {
        "commit": progress.commit,
        "known_at": progress.known_at,
        "topic_id": progress.topic_id,
        "obeyed": dict(progress.applied),
    }
    given = {name: value for name, value in told.items() if value}
    return {"checkpoint": None if checkpoint is None else str(checkpoint), **given}


def _parsed(text: str | None, instant: Instant) -> TableProgress:
    if text is None:
        return TableProgress()
    try:
        told = json.loads(text)
        streamers = {str(n): _from_json(entry, instant) for n, entry in told["streamers"].items()}
        return TableProgress(streamers, str(told["as_of"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise commit_keys.DamagedCheckpoint(instant.requested_at, keys.CHECKPOINTS, text) from error


def _from_json(entry: Mapping[str, Any], instant: Instant) -> Progress:
    text, commit = entry["checkpoint"], str(entry["commit"])
    is_own = commit == instant.requested_at
    # Whoever copied another's entry as it was did not say when that completed: after its request.
    known_at = instant.completed_at or "" if is_own else str(entry.get("known_at") or commit)
    return Progress(
        None if text is None else KafkaCheckpoint.parse(text),
        commit,
        known_at,
        str(entry.get("topic_id", "")),
        applied={str(k): str(v) for k, v in entry.get("obeyed", {}).items()},
    )
