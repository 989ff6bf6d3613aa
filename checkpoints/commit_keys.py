"""A checkpoint inside a commit, where Apache Hudi's streamer keeps it: keys of extra metadata.

Releases 1.0 to 1.2 of Apache Hudi write the second key for Kafka sources, older and newer ones the
first; their readers probe the second, then the first. This project reads in the same order and
writes the first. A commit never carries both: a stale second key would win.
"""

from __future__ import annotations

from collections.abc import Mapping

from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.config import keys
from lakemark.errors import Permanent

CHECKPOINT_KEY = "deltastreamer.checkpoint.key"
CHECKPOINT_KEY_V2 = "streamer.checkpoint.key.v2"
RESET_KEY = "deltastreamer.checkpoint.reset_key"
RESET_KEY_V2 = "streamer.checkpoint.reset.key.v2"
IGNORE_KEY = "deltastreamer.checkpoint.ignore_key"

#: What Apache Hudi's streamer notes of its command line, so that it obeys each option once.
APPLIED_KEYS = frozenset({RESET_KEY, RESET_KEY_V2, IGNORE_KEY})


class DamagedCheckpoint(Permanent):
    """A commit carries a checkpoint that cannot be read, so nobody knows where to go on.

    Attributes:
        commit: the commit, or "" where it is not known.
        key: the key of its extra metadata.
        value: what was found there.
    """

    def __init__(self, commit: str, key: str, value: str) -> None:
        place = f"commit {commit}" if commit else "the commit"
        super().__init__(
            f"{place} carries {key}={value!r}, expected topic,partition:offset,…; set the offsets "
            "to resume from with lakemark checkpoint set TABLE OFFSETS --run"
        )
        self.commit, self.key, self.value = commit, key, value


def encode(checkpoint: KafkaCheckpoint) -> dict[str, str]:
    """The extra metadata that keeps ``checkpoint`` in a commit."""
    return {CHECKPOINT_KEY: str(checkpoint)}


def decode(extra_metadata: Mapping[str, str], commit: str = "") -> KafkaCheckpoint | None:
    """The checkpoint in a commit's extra metadata, or None when it carries none.

    Args:
        extra_metadata: of the commit.
        commit: its name, for the error.

    Raises:
        DamagedCheckpoint: a key is present and its value is empty or unreadable.
    """
    key = checkpoint_key(extra_metadata)
    return None if key is None else parse(commit, key, extra_metadata[key])


def checkpoint_key(extra_metadata: Mapping[str, str]) -> str | None:
    """Which key of a commit keeps its checkpoint."""
    return next((k for k in (CHECKPOINT_KEY_V2, CHECKPOINT_KEY) if k in extra_metadata), None)


def applied(extra_metadata: Mapping[str, str]) -> dict[str, str]:
    """What Apache Hudi's streamer must find beside the checkpoint when it goes on after us."""
    return {k: v for k, v in extra_metadata.items() if k in APPLIED_KEYS}


def carried_forward(extra_metadata: Mapping[str, str]) -> dict[str, str]:
    """What a commit without progress of its own takes over from the one before it.

    The checkpoint moves to the first key; resets and the like stay as they are, so that Apache
    Hudi's streamer still knows that it has applied them. What is known of all streamers stays, too.

    Raises:
        DamagedCheckpoint: a key is present and its value is empty or unreadable.
    """
    kept = applied(extra_metadata)
    if keys.CHECKPOINTS in extra_metadata:
        kept[keys.CHECKPOINTS] = extra_metadata[keys.CHECKPOINTS]
    checkpoint = decode(extra_metadata)
    return kept if checkpoint is None else {**kept, **encode(checkpoint)}


def parse(commit: str, key: str, value: str | None) -> KafkaCheckpoint:
    """The checkpoint that a commit keeps under a key.

    Raises:
        DamagedCheckpoint: there is none in it, or it names no partition.
    """
    try:
        checkpoint = KafkaCheckpoint.parse(value or "")
    except ValueError as error:
        raise DamagedCheckpoint(commit, key, value or "") from error
    if not checkpoint.offsets:
        raise DamagedCheckpoint(commit, key, value or "")
    return checkpoint
