"""Reads and writes a checkpoint in a commit (keys of ``lakemark.transaction.carried_metadata``)."""

from __future__ import annotations

from collections.abc import Mapping

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.files_position import FilesPosition
from checkpoints.position import Position
from checkpoints.snapshot_position import SnapshotPosition
from checkpoints.table_position import TablePosition
from lakemark.transaction.carried_metadata import CHECKPOINT_KEY, checkpoint_key
from lakemark.transaction.streamer_progress import DamagedCheckpoint


def encode(checkpoint: Position) -> dict[str, str]:
    """Return the extra metadata that records ``checkpoint`` in a commit."""
    return {CHECKPOINT_KEY: str(checkpoint)}


def decode(extra_metadata: Mapping[str, str], commit: str = "") -> Position | None:
    """Decode the checkpoint in the extra metadata of a commit; return None if there is none.

    Args:
        extra_metadata: the extra metadata of the commit.
        commit: the requested time of the commit, for the error.

    Raises:
        DamagedCheckpoint: a checkpoint key is present, but its value is empty or not readable.
    """
    key = checkpoint_key(extra_metadata)
    return None if key is None else parse_checkpoint(commit, key, extra_metadata[key])


def parse_checkpoint(commit: str, key: str, value: str) -> Position:
    """Parse the checkpoint that a commit stores under a key.

    Raises:
        DamagedCheckpoint: the value is not a checkpoint, or names no partition.
    """
    try:
        return parse_text(value)
    except ValueError as error:
        raise DamagedCheckpoint(commit, key, value) from error


def parse_text(text: str) -> Position:
    """Parse the text of a position.

    Raises:
        ValueError: the text is not a position, or it names no partition of its topic.
    """
    if SnapshotPosition.has_form(text):
        return SnapshotPosition.parse(text)
    if TablePosition.has_form(text):
        return TablePosition.parse(text)
    if FilesPosition.has_form(text):
        return FilesPosition.parse(text)
    checkpoint = KafkaCheckpoint.parse(text)
    if not checkpoint.offsets:
        message = f"checkpoint {text!r} names no partition"
        raise ValueError(message)
    return checkpoint
