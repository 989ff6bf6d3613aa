"""The rules of the properties that describe a table as a whole, and its timeline."""

from __future__ import annotations

from lakemark.config import keys
from lakemark.config.property_predicates import (
    is_another_layout,
    is_none_of,
    is_only_read,
    is_unknown_version,
)
from lakemark.config.property_rule import (
    ONLY_APACHE,
    Effect,
    PropertyRule,
    Purpose,
    Refusal,
    honoured,
    ignored,
)
from lakemark.model.format_version import WRITTEN, FormatVersion

_VERSIONS = ", ".join(str(int(version)) for version in FormatVersion)
_WRITTEN_VERSIONS = ", ".join(str(int(version)) for version in WRITTEN)

IDENTITY_RULES = (
    honoured(keys.TABLE_NAME, "part of the checksum"),
    honoured(keys.DATABASE_NAME, "part of the checksum"),
    honoured(
        keys.TABLE_CHECKSUM,
        "a file with a wrong checksum is refused; each change of the file writes a new checksum. "
        "Only tables of versions 2 and 3 may lack it",
    ),
    honoured(keys.TABLE_TYPE, "merge-on-read or copy-on-write"),
    honoured(
        keys.TABLE_VERSION,
        "a table keeps its version until `lakemark table upgrade` or `downgrade`",
        Refusal(
            Purpose.READ,
            f"values other than {_VERSIONS}",
            is_unknown_version,
            f"but only versions {_VERSIONS} can be read",
            "upgrade the table with Apache Hudi",
        ),
        Refusal(
            Purpose.MAINTAIN,
            f"values other than {_WRITTEN_VERSIONS}",
            is_only_read,
            f"but lakemark writes only versions {_WRITTEN_VERSIONS}",
            f"upgrade it first: lakemark table upgrade TABLE --to {WRITTEN[0]:d} --run",
        ),
    ),
    ignored(keys.INITIAL_VERSION, "the version that the table was created with; it is kept"),
    honoured(
        keys.TABLE_FORMAT,
        "another format has another timeline",
        Refusal(
            Purpose.READ,
            "values other than `native`",
            is_none_of("native"),
            "but lakemark reads only tables in Hudi's own format",
            ONLY_APACHE,
        ),
    ),
    PropertyRule(
        keys.CREATE_SCHEMA,
        Effect.HONOUR,
        Effect.IGNORE,
        "the columns of queries until the first commit, whose schema replaces this one",
    ),
    *(
        honoured(key, "a property of lakemark: the index of a new table, until the first commit")
        for key in keys.INDEX_OF_CREATION
    ),
)

TIMELINE_RULES = (
    honoured(
        keys.TIMELINE_LAYOUT_VERSION,
        "follows from the table version",
        Refusal(
            Purpose.READ,
            "a layout that does not belong to the table version",
            is_another_layout,
            "which does not belong to the table's version",
            "repair the table with Apache Hudi",
        ),
    ),
    honoured(keys.TIMELINE_PATH, "folder of the active timeline, version 8 and later"),
    honoured(keys.TIMELINE_HISTORY_PATH, "folder of the archived timeline, version 8 and later"),
    honoured(keys.ARCHIVELOG_FOLDER, "folder of the archived timeline, up to version 6"),
    honoured(
        keys.TIMELINE_TIMEZONE,
        "the time zone of instant times; writing with `LOCAL` needs a setting "
        "([concurrency.md](concurrency.md#time-zones))",
        Refusal(
            Purpose.MAINTAIN,
            "values other than `UTC` and `LOCAL`",
            is_none_of("UTC", "LOCAL"),
            "which is neither UTC nor LOCAL",
            "set it to the time zone that the writers of the table use",
        ),
    ),
)
