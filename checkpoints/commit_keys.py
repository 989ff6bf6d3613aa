"""The keys of extra metadata under which Apache Hudi's streamer records a checkpoint in a commit.

Releases 1.0 to 1.2 of Apache Hudi write the second key for Kafka sources; older and newer releases
write the first. All of them read the second key, and then the first. This project reads in the same
order and writes the first. It never writes both, because a stale second key would win.
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

#: Options of its command line that Apache Hudi's streamer records, so as to apply each only once.
APPLIED_KEYS = frozenset({RESET_KEY, RESET_KEY_V2, IGNORE_KEY})


class DamagedCheckpoint(Permanent):
    """A commit has a checkpoint that cannot be read, so the offsets to resume from are not known.

    Attributes:
        commit: requested time of the commit, or "" if it is not known.
        key: the key of its extra metadata.
        value: the value of the key.
    """

    def __init__(self, commit: str, key: str, value: str) -> None:
        subject = f"commit {commit}" if commit else "the commit"
        super().__init__(
            f"{subject} has {key}={value!r}, expected topic,partition:offset,…; set the offsets "
            "to resume from with lakemark checkpoint set TABLE OFFSETS --run"
        )
        self.commit, self.key, self.value = commit, key, value


def encode(checkpoint: KafkaCheckpoint) -> dict[str, str]:
    """The extra metadata that records ``checkpoint`` in a commit."""
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


def checkpoint_key(extra_metadata: Mapping[str, str]) -> str | None:
    """The key that has the checkpoint of a commit, or None."""
    return next((k for k in (CHECKPOINT_KEY_V2, CHECKPOINT_KEY) if k in extra_metadata), None)


def applied_options(extra_metadata: Mapping[str, str]) -> dict[str, str]:
    """The options that Apache Hudi's streamer has applied, which it must find when it resumes."""
    return {k: v for k, v in extra_metadata.items() if k in APPLIED_KEYS}


def carry_forward(extra_metadata: Mapping[str, str]) -> dict[str, str]:
    """Copy the progress of an earlier commit into a commit that makes none, such as a compaction.

    The checkpoint moves to the first key. The options that Apache Hudi's streamer has applied are
    copied, so that it does not apply them again; so is the progress of all streamers.

    Raises:
        DamagedCheckpoint: a key is present, and its value is empty or unreadable.
    """
    copied = applied_options(extra_metadata)
    if keys.CHECKPOINTS in extra_metadata:
        copied[keys.CHECKPOINTS] = extra_metadata[keys.CHECKPOINTS]
    checkpoint = decode(extra_metadata)
    return copied if checkpoint is None else {**copied, **encode(checkpoint)}


def parse_checkpoint(commit: str, key: str, value: str | None) -> KafkaCheckpoint:
    """Parse the checkpoint that a commit has under a key.

    Raises:
        DamagedCheckpoint: the value is not a checkpoint, or it has no partition.
    """
    try:
        checkpoint = KafkaCheckpoint.parse(value or "")
    except ValueError as error:
        raise DamagedCheckpoint(commit, key, value or "") from error
    if not checkpoint.offsets:
        raise DamagedCheckpoint(commit, key, value or "")
    return checkpoint
