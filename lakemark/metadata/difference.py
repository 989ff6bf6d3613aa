"""A difference between a metadata table and the data files that it describes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between the metadata table and the data files.

    Attributes:
        path: path of the file from the table's root, or only its name if the file does not exist.
            For other differences, the path of a partition, with a final ``/``, or a path of the
            metadata table itself.
        aspect: ``size``, ``timeline``, ``files``, the name of an index, or the column whose
            statistics differ.
        stored: the value in the metadata table.
        found: the value according to the timeline, the listing or the data files.
    """

    path: str
    aspect: str
    stored: str
    found: str
