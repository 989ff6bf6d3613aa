r"""Reads Spark's offset log, to which Spark writes the end offsets of a batch before running it.

``<checkpoint folder>/offsets/<batch id>`` has the line ``v1``, a line with the metadata of the
batch as JSON, and one line for each source. For Kafka, that line is
``{"<topic>":{"<partition>":<next offset>,…}}`` (``OffsetSeqLog`` and ``KafkaSourceOffset`` of Spark
3.5 and 4.0). Each start has a new temporary folder, because only the table records the committed
offsets.
"""

from __future__ import annotations

import json
from pathlib import Path

from checkpoints.checkpoint import KafkaCheckpoint
from streamer.sources.errors import DamagedOffsetLog

_VERSION = "v1"


def planned_end(scratch: Path, batch_id: int) -> KafkaCheckpoint:
    """Read the offsets at which a batch ends and the next batch starts.

    Args:
        scratch: the stream's checkpoint folder, on a local disk.
        batch_id: the id that ``foreachBatch`` receives.

    Raises:
        DamagedOffsetLog: the file does not exist, or is not in the known format.
    """
    path = scratch / "offsets" / str(batch_id)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedOffsetLog(str(path), "the offsets of a batch", str(error)) from error
    return parse(text, str(path))


def parse(text: str, path: str) -> KafkaCheckpoint:
    """Parse one file of the log.

    Raises:
        DamagedOffsetLog: the file does not contain the offsets of one Kafka topic in version 1.
    """
    lines = text.splitlines()
    if len(lines) != 3 or lines[0] != _VERSION:
        expected = f"{_VERSION}, metadata and one source in three lines"
        raise DamagedOffsetLog(path, expected, f"{len(lines)} lines after {text[:20]!r}")
    try:
        ((topic, offsets),) = json.loads(lines[2]).items()
        return KafkaCheckpoint(topic, {_digits(p): int(o) for p, o in offsets.items()})
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedOffsetLog(path, "the offsets of one Kafka topic", lines[2][:80]) from error


def _digits(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        message = f"not a partition: {text!r}"
        raise ValueError(message)
    return int(text)
