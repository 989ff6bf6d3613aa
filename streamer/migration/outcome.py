"""What became of the options and properties of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Sets:
    """A setting of the pipeline.

    Attributes:
        path: the path of the setting, such as ``table.record_key``.
        value: the value, as YAML represents it.
        names: the options and properties that decide the value; empty for a default of
            HoodieStreamer.
        comment: why the value was chosen, for a comment in the pipeline file; "" if the value says
            the same as the job.
    """

    path: str
    value: object
    names: tuple[str, ...] = ()
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Harmless:
    """Options and properties without an effect on the pipeline, and the reason.

    Attributes:
        names: the options and properties.
        reason: why nothing needs to be done, as a clause without a final full stop.
    """

    names: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Missing:
    """Options and properties that a pipeline file cannot express.

    Attributes:
        names: the options and properties.
        remedy: what to do instead, as a clause without a final full stop.
        changes_rows: whether the pipeline writes other rows than the job, or loses rows, unless the
            user does something about it.
    """

    names: tuple[str, ...]
    remedy: str
    changes_rows: bool = False


Outcome: TypeAlias = Sets | Harmless | Missing
