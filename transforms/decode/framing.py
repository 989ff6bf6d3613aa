"""How encoded values refer to the schemas with which they were written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.codec.byte_strings import ByteStrings
from transforms.decode.decode_result import Indices
from transforms.reject_reason import RejectReason


class Written(Protocol):
    """The schema of a writer, in any format."""

    @property
    def name(self) -> str:
        """The name for reasons, such as ``schema 17``."""
        ...

    @property
    def fields(self) -> pa.StructType:
        """The fields of the writer, with their Arrow types."""
        ...


WrittenT = TypeVar("WrittenT", bound=Written, covariant=True)


@dataclass(frozen=True, slots=True)
class WriterGroup(Generic[WrittenT]):
    """Values that have the same writer's schema, or whose schema is not usable.

    Attributes:
        schema: the writer's schema; or the reason why it is not known or not supported.
        indices: the indices of the values, ascending.
    """

    schema: WrittenT | RejectReason
    indices: Indices


GroupT = TypeVar("GroupT", bound=WriterGroup[Written], covariant=True)


class Framing(ABC, Generic[GroupT]):
    """How values refer to their writer's schema. Can be pickled."""

    @abstractmethod
    def groups(self, values: ByteStrings, present: Indices) -> Iterator[GroupT]:
        """Group values by their writer's schema.

        Args:
            values: all values.
            present: the indices of the values that are neither null nor empty.

        Raises:
            RegistryError: the registry cannot be read; or it lacks a schema, and the run must stop
                in this case.
        """

    def schema_ids(self, values: ByteStrings) -> npt.NDArray[np.int64] | None:
        """Return the id of each value's schema, or -1; None if no value has an id."""
        return None
