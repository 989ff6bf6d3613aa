"""Reads and writes a checkpoint in a commit (keys of ``lakemark.transaction.carried_metadata``)."""

from __future__ import annotations

from collections.abc import Mapping

from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.transaction.carried_metadata import CHECKPOINT_KEY, checkpoint_key
from lakemark.transaction.streamer_progress import DamagedCheckpoint


def encode(checkpoint: KafkaCheckpoint) -> dict[str, str]:
    """Return the extra metadata that records ``checkpoint`` in a commit."""
    return {CHECKPOINT_KEY: str(checkpoint)}


def decode(extra_metadata: Mapping[str, str], commit: str = "") -> KafkaCheckpoint | None:
    """Decode the checkpoint in the extra metadata of a commit; return None if there is none.

    Args:
        extra_metadata: the extra metadata of the commit.
        commit: the requested time of the commit, for the error.

    Raises:
        DamagedCheckpoint: a checkpoint key is present, but its value is empty or not readable.
    """
    key = checkpoint_key(extra_metadata)
    return None if key is None else parse_checkpoint(commit, key, extra_metadata[key])


def parse_checkpoint(commit: str, key: str, value: str) -> KafkaCheckpoint:
    """Parse the checkpoint that a commit stores under a key.

    Raises:
        DamagedCheckpoint: the value is not a checkpoint, or names no partition.
    """
    try:
        return parse_text(value)
    except ValueError as error:
        raise DamagedCheckpoint(commit, key, value) from error


def parse_text(text: str) -> KafkaCheckpoint:
    """Parse a checkpoint that has at least one partition.

    Raises:
        ValueError: the text is not a checkpoint, or it names no partition.
    """
    checkpoint = KafkaCheckpoint.parse(text)
    if not checkpoint.offsets:
        message = f"checkpoint {text!r} names no partition"
        raise ValueError(message)
    return checkpoint
