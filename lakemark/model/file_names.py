"""Names of data files.

base file  <fileId>_<writeToken>_<instant>.<extension>
log file   .<fileId>_<instant>.log.<version>_<writeToken>[.cdc]

A file id consists of letters, digits and ``-``. Only the file ids of a partitioned record index in
a metadata table contain the escaped path of a partition, too.

A write token is ``<task>-<stage>-<attempt>``; see ``write_token``. In table version 8 and later,
the name of a log file contains the instant of the delta commit that wrote the log. In version 6, it
contains the instant of the file slice. Source: ``FSUtils`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

_BASE = re.compile(
    r"^([a-zA-Z0-9-]+|record-index-[^_/]+)_([a-zA-Z0-9-]+)_([0-9]+)\.([a-zA-Z0-9]+)$"
)
_LOG = re.compile(r"^\.([^._]+)_([^.]*)\.(?:log|archive)\.(\d+)(?:_(\d+-\d+-\d+)(\.cdc)?)?$")
_CDC = ".cdc"

#: The extensions of base files (``HoodieFileFormat``).
_BASE_EXTENSIONS = ("parquet", "orc", "hfile")

#: Digits of the shortest instant times, which have seconds only.
_SHORTEST_TIME = 14

#: How many hex digits of an attempt's name become part of a file name. As a number they must fit
#: into a Java ``long``.
_TOKEN_DIGITS = 12


def write_token(task: int, attempt: str = "") -> str:
    """Return the write token of a task's file.

    Args:
        task: number of the task.
        attempt: name of the attempt to execute a table service, in hex digits. Two attempts have
            the same instant and file ids, so only this name makes their file names differ. "" for
            a commit, which has only one attempt.
    """
    return f"{task}-0-{int(attempt[:_TOKEN_DIGITS], 16) if attempt else 0}"


@dataclass(frozen=True, slots=True)
class BaseFileName:
    """The parts of a base file's name."""

    file_id: str
    write_token: str
    instant: str
    extension: str = "parquet"

    @classmethod
    def parse(cls, name: str) -> BaseFileName | None:
        """Parse a file name; return None if it is not the name of a base file."""
        match = _BASE.match(name)
        return cls(*match.groups()) if match else None

    @property
    def is_certain(self) -> bool:
        """Whether no other program writes files with such names; ``a_b_1.csv`` is not certain."""
        return self.extension in _BASE_EXTENSIONS and len(self.instant) >= _SHORTEST_TIME

    def is_of(self, attempt: str) -> bool:
        """Return whether this attempt to execute a table service wrote the file."""
        return _is_token_of(self.write_token, attempt)

    def __str__(self) -> str:
        return f"{self.file_id}_{self.write_token}_{self.instant}.{self.extension}"


@dataclass(frozen=True, slots=True)
class LogFileName:
    """The parts of a log file's name; ``write_token`` is None in very old tables."""

    file_id: str
    instant: str
    version: int
    write_token: str | None
    is_cdc: bool = False

    @classmethod
    def parse(cls, name: str) -> LogFileName | None:
        """Parse a file name; return None if it is not the name of a log file."""
        match = _LOG.match(name)
        if match is None:
            return None
        file_id, instant, version, token, cdc = match.groups()
        return cls(file_id, instant, int(version), token, cdc is not None)

    @property
    def is_certain(self) -> bool:
        """Whether no other program writes files with such names."""
        return self.instant.isdigit() and len(self.instant) >= _SHORTEST_TIME

    def __str__(self) -> str:
        token = "" if self.write_token is None else f"_{self.write_token}"
        return f".{self.file_id}_{self.instant}.log.{self.version}{token}{_CDC * self.is_cdc}"

    def is_of(self, attempt: str) -> bool:
        """Return whether this attempt to execute a table service wrote the file."""
        return self.write_token is not None and _is_token_of(self.write_token, attempt)

    @property
    def scan_order(self) -> tuple[str, int, str, bool]:
        """Sort key of a slice's logs: the order in which readers merge them.

        Source: ``HoodieLogFile.LogFileComparator``.
        """
        return (self.instant, self.version, self.write_token or "", self.is_cdc)


def _is_token_of(token: str, attempt: str) -> bool:
    return token.rpartition("-")[2] == write_token(0, attempt).rpartition("-")[2]


def parse_file_ids(names: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the file ids in the names of base files and logs; any text for other names."""
    parts = pc.split_pattern(pc.utf8_ltrim(names, "."), "_", max_splits=1)
    return pc.list_element(parts, 0)


def is_log_name(names: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return whether each name of a data file is that of a log."""
    return pc.starts_with(names, ".")


def is_cdc_name(names: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return whether each name of a data file is that of a file of changes (CDC)."""
    return pc.ends_with(names, _CDC)
