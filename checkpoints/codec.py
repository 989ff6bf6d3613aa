"""A checkpoint inside a commit: the keys of its extra metadata.

Releases 1.0 to 1.2 of Apache Hudi write the second key for Kafka sources, older and newer ones the
first; their readers probe the second, then the first. This project reads in the same order and
writes the first. A commit never carries both: a stale second key would win.
"""

from __future__ import annotations

from collections.abc import Mapping

from checkpoints.checkpoint import KafkaCheckpoint
from table.errors import Permanent

CHECKPOINT_KEY = "deltastreamer.checkpoint.key"
CHECKPOINT_KEY_V2 = "streamer.checkpoint.key.v2"
RESET_KEY = "deltastreamer.checkpoint.reset_key"
RESET_KEY_V2 = "streamer.checkpoint.reset.key.v2"
IGNORE_KEY = "deltastreamer.checkpoint.ignore_key"

#: Every key of extra metadata that belongs to a streamer's progress.
PROGRESS_KEYS = frozenset({CHECKPOINT_KEY, CHECKPOINT_KEY_V2, RESET_KEY, RESET_KEY_V2, IGNORE_KEY})


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
            f"{place} carries {key}={value!r}, expected topic,partition:offset,…; read on from "
            "offsets of your choice by writing to a new table with source.starting set to them"
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
    for key in (CHECKPOINT_KEY_V2, CHECKPOINT_KEY):
        if key in extra_metadata:
            return _parse(commit, key, extra_metadata[key])
    return None


def carried_forward(extra_metadata: Mapping[str, str]) -> dict[str, str]:
    """What a commit without progress of its own takes over from the one before it.

    The checkpoint moves to the first key; resets and the like stay as they are, so that Apache
    Hudi's streamer still knows that it has obeyed them.

    Raises:
        DamagedCheckpoint: a key is present and its value is empty or unreadable.
    """
    kept = {k: v for k, v in extra_metadata.items() if k in (RESET_KEY, RESET_KEY_V2, IGNORE_KEY)}
    checkpoint = decode(extra_metadata)
    return kept if checkpoint is None else {**kept, **encode(checkpoint)}


def _parse(commit: str, key: str, value: str | None) -> KafkaCheckpoint:
    try:
        checkpoint = KafkaCheckpoint.parse(value or "")
    except ValueError as error:
        raise DamagedCheckpoint(commit, key, value or "") from error
    if not checkpoint.offsets:
        raise DamagedCheckpoint(commit, key, value or "")
    return checkpoint
