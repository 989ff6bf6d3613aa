"""A query on registered relations, which is executed once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import pyarrow as pa

from lakemark.errors import DiskFull, HudiError, InvalidConfig, Refused
from lakemark.sql.interruptible import InterruptibleCalls, interruptible_calls
from lakemark.sql.relation import Relation, TableScan
from lakemark.sql.returned_types import OF_QUERIES

#: Rows of a batch of the result.
_BATCH_ROWS: Final = 32_768
#: What follows a message of DuckDB: the line of the query, or settings that a query cannot change.
_ADVICE: Final = re.compile(r"\n\nLINE |\s*Possible solutions:")
#: DuckDB's messages if the disk is full: those of the system, and of its limit of spilled bytes.
_NO_SPACE: Final = re.compile(
    r"No space left on device|Disk quota exceeded|max_temp_directory_size", re.IGNORECASE
)


class SqlQuery:
    """A query, its relations and its connection, which is closed after the last row."""

    def __init__(
        self,
        connection: Any,
        text: str,
        relations: Mapping[str, Relation],
        resources: ExitStack,
    ) -> None:
        """Register the relations.

        Args:
            connection: the connection.
            text: the query.
            relations: the relations that the query reads, by name.
            resources: what is closed after the last row, or after an error.
        """
        self._connection, self._text, self._relations = connection, text, relations
        self._resources = resources
        for name, relation in relations.items():
            connection.register(name, relation)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows.

        Raises:
            InvalidConfig: the query has an error; or, while rows are read, it fails on a value.
            Refused: the query needs too much memory.
            DiskFull: the disk has no space for what the query spills.
            HudiError: a table cannot be read.
        """
        with ExitStack() as resources:
            resources.enter_context(self._resources)
            calls = resources.enter_context(interruptible_calls(self._connection.interrupt))
            with self._typed_errors():
                rows = calls.make(lambda: self._result().to_arrow_reader(_BATCH_ROWS))
            found = self._read(rows, calls, resources.pop_all())
        return pa.RecordBatchReader.from_batches(rows.schema, found)

    def explain(self) -> list[TableScan]:
        """Return the scans that the query makes; errors as for ``to_reader``.

        The query is executed on relations without rows, and each relation records its scans.
        """
        for relation in self._relations.values():
            relation.reads_rows = False
        self.to_reader().read_all()
        return [scan for relation in self._relations.values() for scan in relation.explain()]

    def _result(self) -> Any:
        """Return the result, with distinct names and with types that Arrow and files have."""
        found = self._connection.sql(self._text)
        names, kinds = found.columns, found.types
        if len(set(names)) == len(names) and not any(map(OF_QUERIES.returns_as_another, kinds)):
            return found
        return self._connection.sql(OF_QUERIES.convert(self._text, kinds, distinct_names(names)))

    def _read(
        self, rows: pa.RecordBatchReader, calls: InterruptibleCalls, resources: ExitStack
    ) -> Iterator[pa.RecordBatch]:
        with resources, self._typed_errors():
            while (batch := calls.make(lambda: next(rows, None))) is not None:
                yield batch

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        """Raise the error of a relation in place of DuckDB's error, and convert all others."""
        import duckdb

        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            for relation in self._relations.values():
                if relation.failure is not None:
                    raise relation.failure from None
            typed = _typed(error)
            if typed is None:
                raise
            raise typed from error


def _typed(error: Exception) -> HudiError | None:
    """Return the error for a user; None if a fault of DuckDB or of lakemark caused the error.

    A stream of Arrow keeps only the text of DuckDB's errors, so the text decides.
    """
    text = " ".join(_ADVICE.split(str(error))[0].split())
    if "INTERNAL Error" in text or "FATAL Error" in text:
        return None
    if _NO_SPACE.search(text):
        message = f"the query needs more disk: {text}; set TMPDIR to a folder on a larger disk"
        return DiskFull(message)
    if "Out of Memory Error" in text or isinstance(error, MemoryError):
        message = (
            f"the query needs too much memory: {text}; let it return fewer rows or groups, or give "
            "the machine or container more memory"
        )
        return Refused(message)
    return InvalidConfig(f"the query cannot be executed: {text}")


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return the names, each repeated one with a number: ``id``, ``id_1``."""
    taken: dict[str, None] = {}
    for name in names:
        new, number = name, 0
        while new in taken:
            number += 1
            new = f"{name}_{number}"
        taken[new] = None
    return list(taken)
