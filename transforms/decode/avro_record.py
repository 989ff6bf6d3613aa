"""Why one Avro datum cannot be read: for the few that a reader of columns stumbled over."""

from __future__ import annotations

from lakemark.codec.avro_nodes import Node
from lakemark.codec.avro_walk import BrokenDatum, Walk


def reason_against(datum: bytes, root: Node) -> str | None:
    """Why bytes are no record of a schema; None when they are one."""
    walk = Walk(memoryview(datum), 0, len(datum))
    try:
        walk.over(root)
        walk.over_end()
    except BrokenDatum as broken:
        return str(broken)
    return None
