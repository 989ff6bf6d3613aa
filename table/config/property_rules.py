"""What each property of a table means for reading it and for writing it.

A property in ``hoodie.properties`` is honoured, ignored because ignoring it is harmless, or
refused. A ``hoodie.`` property that has no rule here makes the table read-only: it may ask writers
for something that this project does not do. Apache Hudi's Spark writer takes every property of the
file as an option of its writes, so none of them is a mere note. Keys outside ``hoodie.`` are notes
of users, which no version of Apache Hudi looks at.

``docs/foreign_tables.md`` is printed from these rules. Source: ``HoodieTableConfig`` and
``HoodieTableMetaClient.TableBuilder`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from table.config import keys
from table.config.key_generators import implemented, word_of_class
from table.config.merge_settings import PAYLOAD_CLASSES, PartialUpdateMode, merge_settings
from table.config.table_properties import MergeMode, TableProperties
from table.errors import Unsupported
from table.model.format_version import FormatVersion


class Purpose(IntEnum):
    """What a table is opened for. A property that refuses one purpose refuses all later ones."""

    READ = 0
    #: Table services, rollbacks, restores, version changes: no row changes its key or values.
    MAINTAIN = 1
    #: Records are inserted, updated or deleted.
    WRITE = 2


#: In ``Refusal.values``: no value is accepted.
ANY_VALUE = "any value"


class Effect(StrEnum):
    """What is done with the value of a property that is not refused."""

    HONOUR = "honour"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Values of a property for which a table is refused.

    Attributes:
        since: the first purpose that is refused.
        values: the values, as the page names them.
        applies: whether the table has such a value; called with the value, "" for none.
        because: continues "<property> is <value>, ".
        remedy: what to do about it.
    """

    since: Purpose
    values: str
    applies: Callable[[TableProperties, str], bool]
    because: str
    remedy: str


@dataclass(frozen=True, slots=True)
class PropertyRule:
    """What reading and writing do with one property.

    Attributes:
        key: of the property; one that ends with ``*`` is the prefix of several.
        reading: what reading does with values that it does not refuse.
        writing: what writing does with values that it does not refuse.
        why: the reason in a few words, for the page.
        refusals: values for which the table is refused.
    """

    key: str
    reading: Effect
    writing: Effect
    why: str
    refusals: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """A property for which a table is refused, with its value."""

    key: str
    value: str
    because: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.key} is {_shown(self.key, self.value)}, {self.because}; {self.remedy}"


def check_allows(properties: TableProperties, purpose: Purpose, place: str) -> None:
    """Pass when a table may be read, maintained or written.

    Args:
        properties: of the table.
        purpose: what it is opened for.
        place: names the table in the error.

    Raises:
        Unsupported: a property, or its value, does not allow it; the message names the property,
            its value and the remedy, for each property that does not.
    """
    found = [str(problem) for problem in problems(properties, purpose)]
    if found:
        verb = {Purpose.READ: "read", Purpose.MAINTAIN: "changed", Purpose.WRITE: "written"}
        message = f"table {place} cannot be {verb[purpose]} here: " + "\n".join(found)
        raise Unsupported(message)


def problems(properties: TableProperties, purpose: Purpose) -> Iterator[Problem]:
    """The properties of a table that do not allow a purpose, in the order of the rules."""
    values = properties.values
    for rule in RULES:
        for key in _stored_keys(rule, values):
            value = values.get(key, "")
            for refusal in rule.refusals:
                if refusal.since <= purpose and refusal.applies(properties, value):
                    yield Problem(key, value, refusal.because, refusal.remedy)
                    break
    if purpose > Purpose.READ:
        for key in sorted(key for key in values if rule_of(key) is None):
            yield Problem(key, values[key], _UNKNOWN, _REMOVE)
        for key in sorted(key for key in values if _has_outer_spaces(key, values[key])):
            yield Problem(key, values[key], _OUTER_SPACES, _REMOVE_SPACES)


def _has_outer_spaces(key: str, value: str) -> bool:
    return rule_of(key) is not USER_NOTES and value != value.strip()


def rule_of(key: str) -> PropertyRule | None:
    """The rule of a property; None when what it means is not known."""
    if not key.startswith(("hoodie.", "_hoodie.")):
        return USER_NOTES
    if key in _RULE_BY_KEY:
        return _RULE_BY_KEY[key]
    prefixed = (rule for rule in RULES if rule.key.endswith("*"))
    return next((rule for rule in prefixed if key.startswith(rule.key[:-1])), None)


def _stored_keys(rule: PropertyRule, values: Mapping[str, str]) -> tuple[str, ...]:
    """The keys that a rule judges, whether the table has them; of a prefix those that it has."""
    if not rule.key.endswith("*"):
        return (rule.key,)
    return tuple(sorted(key for key in values if rule_of(key) is rule))


def _shown(key: str, value: str) -> str:
    if any(word in key for word in ("password", "secret", "token", "credential")):
        return "set"
    return repr(value if len(value) <= _SHOWN_LENGTH else value[:_SHOWN_LENGTH] + "…")


#: Characters of a value that an error shows.
_SHOWN_LENGTH = 120

_UNKNOWN = "which is not known here and may ask writers for something that is not done here"
_REMOVE = (
    "write with Apache Hudi, or remove the property from .hoodie/hoodie.properties if no writer "
    "and no reader of the table needs it"
)
_OUTER_SPACES = (
    "which begins or ends with a space, and Apache Hudi takes the space as a part of the value"
)
_REMOVE_SPACES = "remove the space from the value in .hoodie/hoodie.properties"
_ANOTHER_PATH = "write with Apache Hudi, or write to another path"
_ONLY_APACHE = "read and write the table with Apache Hudi"
_DROP_METADATA_TABLE = (
    "--drop-metadata-table makes the metadata table again without (Apache Hudi builds indexes "
    "again when it is asked to)"
)

#: Partitions of the metadata table that are written here.
_MAINTAINED = ("files", "column_stats", "partition_stats")
_VERSIONS = ", ".join(str(int(version)) for version in FormatVersion)
_INDEX_DEFINITIONS = ".hoodie/.index_defs/index.json"
_SLASH_EXTRACTORS = (
    "SlashEncodedDayPartitionValueExtractor",
    "SlashEncodedHourPartitionValueExtractor",
)


def _is_true(properties: TableProperties, value: str) -> bool:
    return value.lower() == "true"


def _lacks_meta_columns(properties: TableProperties, value: str) -> bool:
    return not properties.populates_meta_columns


def _is_set(properties: TableProperties, value: str) -> bool:
    return bool(value.strip())


def _is_none_of(*accepted: str) -> Callable[[TableProperties, str], bool]:
    return lambda properties, value: value.strip() not in ("", *accepted)


def _is_unknown_version(properties: TableProperties, value: str) -> bool:
    return properties.version not in FormatVersion.__members__.values()


def _is_another_layout(properties: TableProperties, value: str) -> bool:
    if _is_unknown_version(properties, value) or not value.strip():
        return False
    return value.strip() != str(FormatVersion(properties.version).timeline_layout)


def _drops_unreadable_columns(properties: TableProperties, value: str) -> bool:
    is_read = properties.folders_are_values and not properties.is_merge_on_read
    return properties.drops_partition_columns and not is_read


def _is_cdc_of_copy_on_write(properties: TableProperties, value: str) -> bool:
    return properties.cdc_enabled and not properties.is_merge_on_read


def _names_unmaintained(properties: TableProperties, value: str) -> bool:
    return any(name not in _MAINTAINED for name in properties.metadata_partitions)


def _is_unknown_generator(properties: TableProperties, value: str) -> bool:
    return _is_set(properties, value) and implemented(value.strip()) is None


def _is_unknown_generator_class(properties: TableProperties, value: str) -> bool:
    return _is_set(properties, value) and implemented(word_of_class(value.strip())) is None


def _extracts_slashes(properties: TableProperties, value: str) -> bool:
    return value.strip().rpartition(".")[2] in _SLASH_EXTRACTORS


def _merges_unknown(properties: TableProperties) -> bool:
    try:
        merge_settings(properties)
    except Unsupported:
        return True
    return False


_is_unknown_partial_update = _is_none_of("NONE", *PartialUpdateMode)


def _is_unknown_payload(properties: TableProperties, value: str) -> bool:
    partial_update = properties.values.get(keys.PARTIAL_UPDATE_MODE, "")
    is_its_fault = not _is_unknown_partial_update(properties, partial_update)
    return _is_set(properties, value) and is_its_fault and _merges_unknown(properties)


def _is_custom_without_rules(properties: TableProperties, value: str) -> bool:
    is_payload = bool(properties.values.get(keys.PAYLOAD_CLASS))
    return value == MergeMode.CUSTOM and not is_payload and _merges_unknown(properties)


_HONOUR, _IGNORE = Effect.HONOUR, Effect.IGNORE
_READ, _MAINTAIN, _WRITE = Purpose.READ, Purpose.MAINTAIN, Purpose.WRITE


def _honoured(key: str, why: str, *refusals: Refusal) -> PropertyRule:
    return PropertyRule(key, _HONOUR, _HONOUR, why, refusals)


def _ignored(key: str, why: str, *refusals: Refusal) -> PropertyRule:
    return PropertyRule(key, _IGNORE, _IGNORE, why, refusals)


_UNREAD_BASE_FORMAT = Refusal(
    _READ,
    "values other than `PARQUET` and `HFILE`",
    _is_none_of("PARQUET", "HFILE"),
    "and base files of that format are not read here",
    _ONLY_APACHE,
)
_UNWRITTEN_BASE_FORMAT = Refusal(
    _MAINTAIN,
    "values other than `PARQUET`",
    _is_none_of("PARQUET"),
    "and base files are written here as Parquet only",
    _ANOTHER_PATH,
)
_UNREAD_LOG_FORMAT = Refusal(
    _READ,
    "values other than `HOODIE_LOG`",
    _is_none_of("HOODIE_LOG"),
    "and log files of that format are not read here",
    _ONLY_APACHE,
)
_UNWRITTEN_GENERATOR = "and this key generator is not one that writes keys and partition paths here"

_IDENTITY = (
    _honoured(keys.TABLE_NAME, "part of the checksum"),
    _honoured(keys.DATABASE_NAME, "part of the checksum"),
    _honoured(keys.TABLE_CHECKSUM, "a damaged file is refused; each change writes it again"),
    _honoured(keys.TABLE_TYPE, "merge-on-read or copy-on-write"),
    _honoured(
        keys.TABLE_VERSION,
        "a table keeps its version until `lakemark table upgrade` or `downgrade`",
        Refusal(
            _READ,
            f"values other than {_VERSIONS}",
            _is_unknown_version,
            f"and versions {_VERSIONS} can be read",
            "upgrade the table with Apache Hudi",
        ),
    ),
    _ignored(keys.INITIAL_VERSION, "a record of the table's past, which stays"),
    _honoured(
        keys.TABLE_FORMAT,
        "another format keeps its timeline in its own way",
        Refusal(
            _READ,
            "values other than `native`",
            _is_none_of("native"),
            "and only tables of Hudi's own format are read here",
            _ONLY_APACHE,
        ),
    ),
    PropertyRule(
        keys.CREATE_SCHEMA,
        _HONOUR,
        _IGNORE,
        "the columns that a query may name until the first commit, whose schema then counts",
    ),
)

_TIMELINE = (
    _honoured(
        keys.TIMELINE_LAYOUT_VERSION,
        "follows from the table version",
        Refusal(
            _READ,
            "a layout that is not the one of the table version",
            _is_another_layout,
            "which is not the layout of the table's version",
            "repair the table with Apache Hudi",
        ),
    ),
    _honoured(keys.TIMELINE_PATH, "folder of the active timeline, version 8 and later"),
    _honoured(keys.TIMELINE_HISTORY_PATH, "folder of the archived timeline, version 8 and later"),
    _honoured(keys.ARCHIVELOG_FOLDER, "folder of the archived timeline, version 6"),
    _honoured(
        keys.TIMELINE_TIMEZONE,
        "the zone of instant times; `LOCAL` needs a setting to write "
        "([concurrency.md](concurrency.md#time-zones))",
        Refusal(
            _MAINTAIN,
            "values other than `UTC` and `LOCAL`",
            _is_none_of("UTC", "LOCAL"),
            "which is neither UTC nor LOCAL",
            "set it to the zone that the writers of the table use",
        ),
    ),
)

_KEYS_AND_PARTITIONS = (
    _honoured(keys.RECORD_KEY_FIELDS, "must equal the pipeline's"),
    _honoured(keys.PARTITION_FIELDS, "must equal the pipeline's"),
    _honoured(
        keys.KEY_GENERATOR_TYPE,
        "keys and partition paths must be those that Apache Hudi makes",
        Refusal(
            _WRITE,
            "values other than `SIMPLE`, `COMPLEX`, `NON_PARTITION`, with `_AVRO` or without",
            _is_unknown_generator,
            _UNWRITTEN_GENERATOR,
            _ANOTHER_PATH,
        ),
    ),
    _honoured(
        keys.KEY_GENERATOR_CLASS,
        "the same, as releases of version 6 name it",
        Refusal(
            _WRITE,
            "classes of other key generators, and of users",
            _is_unknown_generator_class,
            _UNWRITTEN_GENERATOR,
            _ANOTHER_PATH,
        ),
    ),
    _honoured(keys.HIVE_STYLE_PARTITIONING, "must equal the pipeline's"),
    _honoured(keys.URL_ENCODE_PARTITIONING, "must equal the pipeline's"),
    _ignored(
        keys.SLASH_SEPARATED_DATES,
        "values are read from the rows, not from the path",
        Refusal(
            _WRITE,
            "`true`",
            _is_true,
            "and dates are not written as yyyy/MM/dd folders here, so that a key would get a "
            "second row in another folder",
            _ANOTHER_PATH,
        ),
    ),
    _ignored(
        keys.PARTITION_EXTRACTOR_CLASS,
        "it parses paths for catalogs; Apache Hudi 1.2 records slash-separated dates only here",
        Refusal(
            _WRITE,
            "extractors of slash-separated dates",
            _extracts_slashes,
            "and dates are not written as yyyy/MM/dd folders here, so that a key would get a "
            "second row in another folder",
            _ANOTHER_PATH,
        ),
    ),
    _honoured(
        keys.DROP_PARTITION_COLUMNS,
        "the files do not hold the partition columns, which are read from the path",
        Refusal(
            _READ,
            "`true` if a folder is not the value of one column, and on merge-on-read",
            _drops_unreadable_columns,
            "so that the files do not hold the partition columns; they are read from the path here "
            "only on copy-on-write and if each folder is the value of one column",
            _ONLY_APACHE,
        ),
        Refusal(
            _MAINTAIN,
            "`true`",
            _is_true,
            "and files without the partition columns are not written here",
            _ANOTHER_PATH,
        ),
    ),
    *(
        _ignored(key, "only the TIMESTAMP and CUSTOM key generators use it")
        for key in (
            keys.TIMESTAMP_TYPE,
            keys.TIMESTAMP_SCALAR_UNIT,
            keys.TIMESTAMP_INPUT_FORMAT,
            keys.TIMESTAMP_INPUT_DELIMITER,
            keys.TIMESTAMP_INPUT_ZONE,
            keys.TIMESTAMP_OUTPUT_FORMAT,
            keys.TIMESTAMP_OUTPUT_ZONE,
            keys.TIMESTAMP_ZONE,
            keys.TIMESTAMP_PARSER,
            keys.OLD_TIMESTAMP_OPTIONS,
        )
    ),
)

_MERGING = (
    _honoured(keys.ORDERING_FIELDS, "must equal the pipeline's"),
    _honoured(keys.PRECOMBINE_FIELD, "the same, before version 9"),
    _honoured(
        keys.MERGE_MODE,
        "which of two records wins",
        Refusal(
            _MAINTAIN,
            "`CUSTOM` without a merge strategy or a payload",
            _is_custom_without_rules,
            "and the table names neither a merge strategy nor a payload class",
            f"set {keys.MERGE_STRATEGY_ID}",
        ),
    ),
    _honoured(keys.MERGE_STRATEGY_ID, "a user's merger is found by it"),
    _honoured(keys.OLD_MERGE_STRATEGY_ID, "the same, before version 8"),
    _honoured(
        keys.PAYLOAD_CLASS,
        "a query that merges logs refuses an unknown payload as well",
        Refusal(
            _MAINTAIN,
            "payloads that are not known here",
            _is_unknown_payload,
            f"and the payloads that are known here are {', '.join(PAYLOAD_CLASSES)}",
            _ANOTHER_PATH,
        ),
    ),
    _honoured(keys.LEGACY_PAYLOAD_CLASS, "must equal the pipeline's payload, if it names one"),
    _honoured(
        keys.PARTIAL_UPDATE_MODE,
        "a query that merges logs refuses an unknown mode as well",
        Refusal(
            _MAINTAIN,
            "values other than `IGNORE_DEFAULTS` and `FILL_UNAVAILABLE`",
            _is_unknown_partial_update,
            f"and the modes that are known here are {', '.join(PartialUpdateMode)}",
            _ANOTHER_PATH,
        ),
    ),
    _honoured(keys.DELETE_FIELD, "rows with the marker in it are deletes"),
    _honoured(keys.DELETE_MARKER, "the marker"),
    _honoured(keys.UNAVAILABLE_VALUE, "the text that partial updates fill"),
    _ignored(
        keys.MERGE_PROPERTIES,
        "options of a user's merger",
        Refusal(
            _MAINTAIN,
            ANY_VALUE,
            _is_set,
            "which is a rule of merging that is not known here",
            _REMOVE,
        ),
    ),
)

_FILES = (
    _honoured(
        keys.BASE_FILE_FORMAT,
        "format of new base files; each file is read by its extension",
        _UNREAD_BASE_FORMAT,
        _UNWRITTEN_BASE_FORMAT,
    ),
    _honoured(
        keys.OLD_BASE_FILE_FORMAT,
        f"another name of `{keys.BASE_FILE_FORMAT}`",
        _UNREAD_BASE_FORMAT,
        _UNWRITTEN_BASE_FORMAT,
    ),
    _honoured(keys.LOG_FILE_FORMAT, "there is only one", _UNREAD_LOG_FORMAT),
    _honoured(
        keys.OLD_LOG_FILE_FORMAT, f"another name of `{keys.LOG_FILE_FORMAT}`", _UNREAD_LOG_FORMAT
    ),
    _ignored(
        keys.MULTIPLE_BASE_FILE_FORMATS,
        "each file is read by its extension",
        Refusal(
            _MAINTAIN,
            "`true`",
            _is_true,
            "and base files are written here as Parquet only",
            _ANOTHER_PATH,
        ),
    ),
    _honoured(
        keys.POPULATE_META_FIELDS,
        "keys are made from the record key fields if rows do not carry them",
        Refusal(
            _MAINTAIN,
            "`false`",
            _lacks_meta_columns,
            "and tables whose rows do not carry Hudi's columns are not written here",
            _ANOTHER_PATH,
        ),
    ),
    _ignored(
        keys.PARTITION_METAFILE_USE_BASE_FORMAT,
        "partition metafiles are found in each format; Apache Hudi looks for text first",
    ),
)

_INDEXES = (
    _honoured(
        keys.METADATA_PARTITIONS,
        "an index that is not updated with each commit hides rows",
        Refusal(
            _MAINTAIN,
            "partitions other than `files`, `column_stats` and `partition_stats`",
            _names_unmaintained,
            f"but only {', '.join(_MAINTAINED)} are updated here with each commit",
            _DROP_METADATA_TABLE,
        ),
    ),
    PropertyRule(
        keys.METADATA_PARTITIONS_INFLIGHT,
        _HONOUR,
        _HONOUR,
        "queries do not use a half-built index; writers would have to update it",
        (
            Refusal(
                _MAINTAIN,
                ANY_VALUE,
                _is_set,
                "so Apache Hudi is building this index, which every writer has to update and "
                "which is not updated here",
                f"wait until it is complete, or {_DROP_METADATA_TABLE}",
            ),
        ),
    ),
    _honoured(
        keys.INDEX_DEFINITIONS_PATH,
        "the path is the same in every table",
        Refusal(
            _MAINTAIN,
            f"values other than `{_INDEX_DEFINITIONS}`",
            _is_none_of(_INDEX_DEFINITIONS),
            f"and index definitions are kept here in {_INDEX_DEFINITIONS}",
            _ANOTHER_PATH,
        ),
    ),
    _ignored(
        keys.SECONDARY_INDEXES_METADATA,
        "indexes of Hudi 0.13, which no query here uses",
        Refusal(
            _MAINTAIN,
            ANY_VALUE,
            _is_set,
            "and this index is not updated here",
            _ANOTHER_PATH,
        ),
    ),
)

_CHANGES = (
    _honoured(
        keys.CDC_ENABLED,
        "CDC queries of a copy-on-write table need a `.cdc` file for each changed base file",
        Refusal(
            _WRITE,
            "`true` on copy-on-write",
            _is_cdc_of_copy_on_write,
            "and changes to a copy-on-write table need .cdc files, which are not written here, "
            "so every later CDC query would fail",
            "write with Apache Hudi, set it to false, or write to another path",
        ),
    ),
    PropertyRule(keys.CDC_LOGGING_MODE, _HONOUR, _IGNORE, "what CDC queries find in `.cdc` files"),
)

_BOOTSTRAP = (
    _honoured(
        keys.BOOTSTRAP_BASE_PATH,
        "some columns lie in files of another table",
        Refusal(
            _READ,
            ANY_VALUE,
            _is_set,
            "so the table was bootstrapped from there, where some of its columns still lie; such "
            "tables are not read here",
            "rewrite it with Apache Hudi",
        ),
    ),
    *(
        _ignored(key, f"it matters only with `{keys.BOOTSTRAP_BASE_PATH}`")
        for key in (
            keys.BOOTSTRAP_INDEX_ENABLE,
            keys.BOOTSTRAP_INDEX_CLASS,
            keys.BOOTSTRAP_INDEX_TYPE,
        )
    ),
)

#: What becomes of keys outside ``hoodie.``.
USER_NOTES = _ignored("(keys outside `hoodie.`)", "notes of users; Apache Hudi reads none of them")

#: By subject, as the page shows them.
SUBJECTS = {
    "The table": _IDENTITY,
    "Timeline": _TIMELINE,
    "Keys and partitions": _KEYS_AND_PARTITIONS,
    "Merging": _MERGING,
    "Files": _FILES,
    "Indexes": _INDEXES,
    "Change data capture": _CHANGES,
    "Bootstrap": _BOOTSTRAP,
}
RULES = tuple(rule for rules in SUBJECTS.values() for rule in rules)
_RULE_BY_KEY = {rule.key: rule for rule in RULES}
