"""A Kafka checkpoint in a commit, under the keys of ``lakemark.transaction.carried_metadata``."""

from __future__ import annotations

from collections.abc import Mapping

from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.transaction.carried_metadata import CHECKPOINT_KEY, checkpoint_key
from lakemark.transaction.streamer_progress import DamagedCheckpoint


def encode(checkpoint: KafkaCheckpoint) -> dict[str, str]:
    """Return the extra metadata that records ``checkpoint`` in a commit."""
    return {CHECKPOINT_KEY: str(checkpoint)}


def decode(extra_metadata: Mapping[str, str], commit: str = "") -> KafkaCheckpoint | None:
    """Decode the checkpoint in the extra metadata of a commit; None if it has none.

    Args:
        extra_metadata: of the commit.
        commit: requested time of the commit, for the error.

    Raises:
        DamagedCheckpoint: a key is present, and its value is empty or unreadable.
    """
    key = checkpoint_key(extra_metadata)
    return None if key is None else parse_checkpoint(commit, key, extra_metadata[key])


def parse_checkpoint(commit: str, key: str, value: str) -> KafkaCheckpoint:
    """Parse the checkpoint that a commit has under a key.

    Raises:
        DamagedCheckpoint: the value is not a checkpoint, or it has no partition.
    """
    try:
        return parse_text(value)
    except ValueError as error:
        raise DamagedCheckpoint(commit, key, value) from error


def parse_text(text: str) -> KafkaCheckpoint:
    """Return a checkpoint with at least one partition.

    Raises:
        ValueError: the text is not a checkpoint, or it names no partition.
    """
    checkpoint = KafkaCheckpoint.parse(text)
    if not checkpoint.offsets:
        message = f"checkpoint {text!r} names no partition"
        raise ValueError(message)
    return checkpoint
