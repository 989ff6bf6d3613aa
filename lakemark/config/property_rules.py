"""The rule of each table property; ``property_check`` applies the rules.

A property in ``hoodie.properties`` is honoured, ignored because that is harmless, or refused. A
``hoodie.`` property without a rule makes the table read-only, because it may require something of
writers that lakemark does not implement. Any property may have an effect, because Apache Hudi's
Spark writer uses every property of the file as an option of its writes. The same applies to a
``lakemark.`` property without a rule, which a later version of lakemark may have written. All other
keys are notes of users, which no version of Apache Hudi reads.

``docs/foreign_tables.md`` is rendered from these rules. Source: ``HoodieTableConfig`` and
``HoodieTableMetaClient.TableBuilder`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from lakemark.config import keys
from lakemark.config.merge_settings import PAYLOAD_CLASSES, PartialUpdateMode
from lakemark.config.property_predicates import (
    MAINTAINED,
    drops_unreadable_columns,
    extracts_unstored_slashes,
    formats_with_old_options,
    has_bloom_filters_without_meta_columns,
    has_cdc_without_meta_columns,
    has_other_parser,
    has_unknown_expressions,
    has_unwritable_dates,
    has_unwritable_time,
    has_unwritable_virtual_keys,
    is_another_layout,
    is_custom_without_rules,
    is_none_of,
    is_only_read,
    is_set,
    is_true,
    is_unknown_generator,
    is_unknown_generator_class,
    is_unknown_logging_mode,
    is_unknown_partial_update,
    is_unknown_payload,
    is_unknown_version,
    lacks_partition_types,
    names_unmaintained,
)
from lakemark.config.property_rule import ANY_VALUE, Effect, PropertyRule, Purpose, Refusal
from lakemark.config.table_properties import EXPRESSION_INDEX_PREFIX, SECONDARY_INDEX_PREFIX
from lakemark.config.time_folders import stored_unit, stored_zone
from lakemark.config.time_pattern import TimePattern
from lakemark.model.format_version import WRITTEN, FormatVersion

#: Remedy for a property whose meaning for writers is unknown.
REMOVE_PROPERTY = (
    "write with Apache Hudi, or remove the property from .hoodie/hoodie.properties if no writer "
    "and no reader of the table needs it"
)
_ANOTHER_PATH = "write with Apache Hudi, or write to another path"
_ONLY_APACHE = "read and write the table with Apache Hudi"
_DROP_INDEX = "drop it (lakemark table index drop)"
_DROP_METADATA_TABLE = (
    "--drop-metadata-table builds the metadata table again without it (Apache Hudi builds indexes "
    "again when they are configured)"
)

_VERSIONS = ", ".join(str(int(version)) for version in FormatVersion)
_WRITTEN_VERSIONS = ", ".join(str(int(version)) for version in WRITTEN)
_INDEX_DEFINITIONS = ".hoodie/.index_defs/index.json"

_HONOUR, _IGNORE = Effect.HONOUR, Effect.IGNORE
_READ, _MAINTAIN, _WRITE = Purpose.READ, Purpose.MAINTAIN, Purpose.WRITE


def _honoured(key: str, why: str, *refusals: Refusal) -> PropertyRule:
    return PropertyRule(key, _HONOUR, _HONOUR, why, refusals)


def _ignored(key: str, why: str, *refusals: Refusal) -> PropertyRule:
    return PropertyRule(key, _IGNORE, _IGNORE, why, refusals)


_UNREAD_BASE_FORMAT = Refusal(
    _READ,
    "values other than `PARQUET` and `HFILE`",
    is_none_of("PARQUET", "HFILE"),
    "but lakemark cannot read base files of that format",
    _ONLY_APACHE,
)
_UNWRITTEN_BASE_FORMAT = Refusal(
    _MAINTAIN,
    "values other than `PARQUET`",
    is_none_of("PARQUET"),
    "but lakemark writes base files only as Parquet",
    _ANOTHER_PATH,
)
_UNREAD_LOG_FORMAT = Refusal(
    _READ,
    "values other than `HOODIE_LOG`",
    is_none_of("HOODIE_LOG"),
    "but lakemark cannot read log files of that format",
    _ONLY_APACHE,
)
_UNWRITTEN_GENERATOR = "but lakemark does not implement this key generator"

_IDENTITY = (
    _honoured(keys.TABLE_NAME, "part of the checksum"),
    _honoured(keys.DATABASE_NAME, "part of the checksum"),
    _honoured(
        keys.TABLE_CHECKSUM,
        "a file with a wrong checksum is refused; each change of the file writes a new checksum. "
        "Only tables of versions 2 and 3 may lack it",
    ),
    _honoured(keys.TABLE_TYPE, "merge-on-read or copy-on-write"),
    _honoured(
        keys.TABLE_VERSION,
        "a table keeps its version until `lakemark table upgrade` or `downgrade`",
        Refusal(
            _READ,
            f"values other than {_VERSIONS}",
            is_unknown_version,
            f"but only versions {_VERSIONS} can be read",
            "upgrade the table with Apache Hudi",
        ),
        Refusal(
            _MAINTAIN,
            f"values other than {_WRITTEN_VERSIONS}",
            is_only_read,
            f"but lakemark writes only versions {_WRITTEN_VERSIONS}",
            f"upgrade it first: lakemark table upgrade TABLE --to {WRITTEN[0]:d} --run",
        ),
    ),
    _ignored(keys.INITIAL_VERSION, "the version that the table was created with; it is kept"),
    _honoured(
        keys.TABLE_FORMAT,
        "another format has another timeline",
        Refusal(
            _READ,
            "values other than `native`",
            is_none_of("native"),
            "but lakemark reads only tables in Hudi's own format",
            _ONLY_APACHE,
        ),
    ),
    PropertyRule(
        keys.CREATE_SCHEMA,
        _HONOUR,
        _IGNORE,
        "the columns of queries until the first commit, whose schema replaces this one",
    ),
    *(
        _honoured(key, "a property of lakemark: the index of a new table, until the first commit")
        for key in keys.INDEX_OF_CREATION
    ),
)

_TIMELINE = (
    _honoured(
        keys.TIMELINE_LAYOUT_VERSION,
        "follows from the table version",
        Refusal(
            _READ,
            "a layout that does not belong to the table version",
            is_another_layout,
            "which does not belong to the table's version",
            "repair the table with Apache Hudi",
        ),
    ),
    _honoured(keys.TIMELINE_PATH, "folder of the active timeline, version 8 and later"),
    _honoured(keys.TIMELINE_HISTORY_PATH, "folder of the archived timeline, version 8 and later"),
    _honoured(keys.ARCHIVELOG_FOLDER, "folder of the archived timeline, up to version 6"),
    _honoured(
        keys.TIMELINE_TIMEZONE,
        "the time zone of instant times; writing with `LOCAL` needs a setting "
        "([concurrency.md](concurrency.md#time-zones))",
        Refusal(
            _MAINTAIN,
            "values other than `UTC` and `LOCAL`",
            is_none_of("UTC", "LOCAL"),
            "which is neither UTC nor LOCAL",
            "set it to the time zone that the writers of the table use",
        ),
    ),
)

_KEYS_AND_PARTITIONS = (
    _honoured(keys.RECORD_KEY_FIELDS, "must equal the pipeline's"),
    _honoured(
        keys.PARTITION_FIELDS,
        "must equal the pipeline's",
        Refusal(
            _WRITE,
            "fields without a type, with the key generator `CUSTOM`",
            lacks_partition_types,
            "so the table does not show which of them are formatted times",
            "change the table to version 8 or 9 (lakemark table upgrade), or write to another path",
        ),
    ),
    _honoured(
        keys.KEY_GENERATOR_TYPE,
        "keys and partition paths must be those that Apache Hudi generates",
        Refusal(
            _WRITE,
            "values other than `SIMPLE`, `COMPLEX`, `TIMESTAMP`, `CUSTOM`, `NON_PARTITION`, with "
            "`_AVRO` or without",
            is_unknown_generator,
            _UNWRITTEN_GENERATOR,
            _ANOTHER_PATH,
        ),
    ),
    _honoured(
        keys.KEY_GENERATOR_CLASS,
        "like the type; Hudi releases that write table version 6 store only the class",
        Refusal(
            _WRITE,
            "classes of other key generators, and classes of users",
            is_unknown_generator_class,
            _UNWRITTEN_GENERATOR,
            _ANOTHER_PATH,
        ),
    ),
    _honoured(
        keys.PARTITION_EXPRESSIONS,
        "a property of lakemark: partition columns that are computed from other columns",
        Refusal(
            _WRITE,
            "unknown expressions, and columns that are not partition columns",
            has_unknown_expressions,
            "so lakemark cannot compute the partition columns of new rows",
            "write with the version of lakemark that created the table, or correct the property",
        ),
    ),
    _honoured(keys.HIVE_STYLE_PARTITIONING, "must equal the pipeline's"),
    _honoured(keys.URL_ENCODE_PARTITIONING, "must equal the pipeline's"),
    _honoured(
        keys.SLASH_SEPARATED_DATES,
        "dates are in yyyy/MM/dd folders; must equal the pipeline's",
        Refusal(
            _WRITE,
            "`true` with Hive-style folders, with several partition columns, or with another key "
            "generator than `SIMPLE` and `COMPLEX`",
            has_unwritable_dates,
            "but with Hive-style folders, several partition columns or this key generator, Apache "
            "Hudi writes one value to different folders, so a key would get a second row",
            _ANOTHER_PATH,
        ),
    ),
    _ignored(
        keys.PARTITION_EXTRACTOR_CLASS,
        "it parses paths for catalogs; only tables that Apache Hudi created by SQL store the "
        "property above, so that in others only this one shows that dates are slash-separated",
        Refusal(
            _WRITE,
            "extractors of slash-separated dates, unless the property above is `true`",
            extracts_unstored_slashes,
            f"but {keys.SLASH_SEPARATED_DATES} is not stored, so writers do not know whether dates "
            "are in yyyy/MM/dd folders",
            f"if the folders are yyyy/MM/dd and the rows have yyyy-MM-dd, store "
            f"{keys.SLASH_SEPARATED_DATES}=true in .hoodie/hoodie.properties; otherwise write with "
            "Apache Hudi, or write to another path",
        ),
    ),
    _honoured(
        keys.DROP_PARTITION_COLUMNS,
        "the files lack the partition columns, which are read from the path",
        Refusal(
            _READ,
            "`true` on merge-on-read, or if a folder is not the value of one column",
            drops_unreadable_columns,
            "so the files lack the partition columns; lakemark reads them from the path only if "
            "the table is copy-on-write and each folder is the value of one column",
            _ONLY_APACHE,
        ),
        Refusal(
            _MAINTAIN,
            "`true`",
            is_true,
            "but lakemark does not write files without the partition columns",
            _ANOTHER_PATH,
        ),
    ),
    _honoured(
        keys.TIMESTAMP_TYPE,
        "the unit of the times in partition columns",
        Refusal(
            _WRITE,
            "`DATE_STRING`, `MIXED`, unknown values and no value, if a folder is a formatted time",
            has_unwritable_time(stored_unit),
            "but lakemark formats only numbers, timestamps and dates as folders, as the table says",
            "if the table's writers set hoodie.keygen.timebased.… as options only, store them in "
            ".hoodie/hoodie.properties; otherwise write with Apache Hudi",
        ),
    ),
    _honoured(keys.TIMESTAMP_SCALAR_UNIT, f"the unit, if `{keys.TIMESTAMP_TYPE}` is `SCALAR`"),
    _honoured(
        keys.TIMESTAMP_OUTPUT_FORMAT,
        "must equal the pipeline's",
        Refusal(
            _WRITE,
            "other letters than `y`, `M`, `d`, `H`, `m` and `s`, if a folder is a formatted time",
            has_unwritable_time(
                lambda values: TimePattern.parse(values.get(keys.TIMESTAMP_OUTPUT_FORMAT, ""))
            ),
            "which is not a pattern that lakemark can format",
            _ANOTHER_PATH,
        ),
    ),
    _honoured(
        keys.TIMESTAMP_ZONE,
        "must equal the pipeline's",
        Refusal(
            _WRITE,
            f"unknown zones, and no zone here or in `{keys.TIMESTAMP_OUTPUT_ZONE}`, if a folder is "
            "a formatted time",
            has_unwritable_time(stored_zone),
            "so the time zone of the folders is not certain",
            "set it to the time zone in which the folders were written",
        ),
    ),
    _honoured(keys.TIMESTAMP_OUTPUT_ZONE, f"the zone, if `{keys.TIMESTAMP_ZONE}` is not set"),
    _honoured(
        keys.TIMESTAMP_PARSER,
        "the class that reads these properties",
        Refusal(
            _WRITE,
            "classes of users, if a folder is a formatted time",
            has_other_parser,
            "which lakemark cannot run",
            _ANOTHER_PATH,
        ),
    ),
    _ignored(
        keys.OLD_TIMESTAMP_OPTIONS,
        "only the TIMESTAMP and CUSTOM key generators use it",
        Refusal(
            _WRITE,
            "any value, if a folder is a formatted time",
            formats_with_old_options,
            "an option of Hudi before 0.14 that lakemark does not apply",
            "store the option under its new name, hoodie.keygen.timebased.…",
        ),
    ),
    *(
        _ignored(key, "it applies only to times that are stored as text")
        for key in (
            keys.TIMESTAMP_INPUT_FORMAT,
            keys.TIMESTAMP_INPUT_DELIMITER,
            keys.TIMESTAMP_INPUT_ZONE,
        )
    ),
)

_MERGING = (
    _honoured(keys.ORDERING_FIELDS, "must equal the pipeline's"),
    _honoured(
        keys.PRECOMBINE_FIELD,
        f"the name of `{keys.ORDERING_FIELDS}` before version 9, with the same rule",
    ),
    _honoured(
        keys.MERGE_MODE,
        "decides which of two records wins",
        Refusal(
            _MAINTAIN,
            "`CUSTOM` without a merge strategy or a payload",
            is_custom_without_rules,
            "but the table names neither a merge strategy nor a payload class",
            f"set {keys.MERGE_STRATEGY_ID}",
        ),
    ),
    _honoured(keys.MERGE_STRATEGY_ID, "the id of the table's merger; a user's merger must have it"),
    _honoured(
        keys.OLD_MERGE_STRATEGY_ID, f"the name of `{keys.MERGE_STRATEGY_ID}` before version 8"
    ),
    _honoured(
        keys.PAYLOAD_CLASS,
        "queries that merge logs also refuse an unknown payload",
        Refusal(
            _MAINTAIN,
            "unsupported payloads",
            is_unknown_payload,
            f"but lakemark supports only the payloads {', '.join(PAYLOAD_CLASSES)}",
            _ANOTHER_PATH,
        ),
    ),
    _honoured(keys.LEGACY_PAYLOAD_CLASS, "if the pipeline names a payload, it must be this one"),
    _honoured(
        keys.PARTIAL_UPDATE_MODE,
        "queries that merge logs also refuse an unknown mode",
        Refusal(
            _MAINTAIN,
            "values other than `IGNORE_DEFAULTS` and `FILL_UNAVAILABLE`",
            is_unknown_partial_update,
            f"but lakemark supports only the modes {', '.join(PartialUpdateMode)}",
            _ANOTHER_PATH,
        ),
    ),
    _honoured(keys.DELETE_FIELD, "rows with the delete marker in this column are deletes"),
    _honoured(keys.DELETE_MARKER, "the text that marks a row as a delete"),
    _honoured(keys.UNAVAILABLE_VALUE, "the text that partial updates replace"),
    _ignored(
        keys.MERGE_PROPERTIES,
        "options of a user's merger",
        Refusal(
            _MAINTAIN,
            ANY_VALUE,
            is_set,
            "which is a merge option that lakemark does not know",
            REMOVE_PROPERTY,
        ),
    ),
)

_FILES = (
    _honoured(
        keys.BASE_FILE_FORMAT,
        "format of new base files; files are read in the format that their extensions name",
        _UNREAD_BASE_FORMAT,
        _UNWRITTEN_BASE_FORMAT,
    ),
    _honoured(
        keys.OLD_BASE_FILE_FORMAT,
        f"another name of `{keys.BASE_FILE_FORMAT}`",
        _UNREAD_BASE_FORMAT,
        _UNWRITTEN_BASE_FORMAT,
    ),
    _honoured(keys.LOG_FILE_FORMAT, "there is only one format", _UNREAD_LOG_FORMAT),
    _honoured(
        keys.OLD_LOG_FILE_FORMAT, f"another name of `{keys.LOG_FILE_FORMAT}`", _UNREAD_LOG_FORMAT
    ),
    _ignored(
        keys.MULTIPLE_BASE_FILE_FORMATS,
        "files are read in the format that their extensions name",
        Refusal(
            _MAINTAIN,
            "`true`",
            is_true,
            "but lakemark writes base files only as Parquet",
            _ANOTHER_PATH,
        ),
    ),
    _honoured(
        keys.POPULATE_META_FIELDS,
        "if rows have no stored record key, it is generated from the record key fields",
        Refusal(
            _MAINTAIN,
            f"`false`, if `{keys.CDC_ENABLED}` is `true`",
            has_cdc_without_meta_columns,
            "but lakemark stores no change data of rows without meta columns",
            _ANOTHER_PATH,
        ),
        Refusal(
            _MAINTAIN,
            "`false`, if the metadata table has `bloom_filters`",
            has_bloom_filters_without_meta_columns,
            "but files without meta columns have no bloom filters to store in the metadata table",
            _DROP_METADATA_TABLE,
        ),
        Refusal(
            _MAINTAIN,
            "`false`, if the key generator is not `SIMPLE`, `NON_PARTITION` or `COMPLEX`; with "
            "`COMPLEX` and one record key field; on merge-on-read, with a partition field in the "
            "record key; or if the table stores change data or `bloom_filters`",
            has_unwritable_virtual_keys,
            "but without meta columns, Apache Hudi reads only keys of the key generators SIMPLE, "
            "NON_PARTITION and, with several record key fields, COMPLEX; and a merge-on-read table "
            "needs a record key without partition columns",
            _ANOTHER_PATH,
        ),
    ),
    _ignored(
        keys.PARTITION_METAFILE_USE_BASE_FORMAT,
        "lakemark finds partition metafiles in any format, and writes them as text, for which "
        "Apache Hudi looks first",
    ),
)

_INDEXES = (
    _honoured(
        keys.METADATA_PARTITIONS,
        "an index that is not updated with each commit would hide rows. In versions before 6, the "
        "metadata table is not read",
        Refusal(
            _MAINTAIN,
            f"partitions other than {', '.join(f'`{name}`' for name in MAINTAINED)} and, from "
            f"table version 8 on, `{EXPRESSION_INDEX_PREFIX}…` and, with `record_index`, "
            f"`{SECONDARY_INDEX_PREFIX}…`",
            names_unmaintained,
            f"but lakemark updates only {', '.join(MAINTAINED)} and, from version 8 on, "
            f"{EXPRESSION_INDEX_PREFIX}… and, in tables with a record index, "
            f"{SECONDARY_INDEX_PREFIX}… with each commit",
            f"{_DROP_INDEX}, or {_DROP_METADATA_TABLE}",
        ),
    ),
    _honoured(
        keys.DROPPED_INDEXES,
        "a property of lakemark: indexes of a metadata table that was dropped, which the next "
        "metadata table has again",
    ),
    PropertyRule(
        keys.METADATA_PARTITIONS_INFLIGHT,
        _HONOUR,
        _HONOUR,
        "queries do not use an index that is being built, but writers have to update it",
        (
            Refusal(
                _MAINTAIN,
                ANY_VALUE,
                is_set,
                "so Apache Hudi is building this index; every writer must update it, but lakemark "
                "does not",
                f"wait until it is complete. If its process has died, {_DROP_INDEX}, or "
                f"{_DROP_METADATA_TABLE}",
            ),
        ),
    ),
    _honoured(
        keys.INDEX_DEFINITIONS_PATH,
        "lakemark uses the same path in every table",
        Refusal(
            _MAINTAIN,
            f"values other than `{_INDEX_DEFINITIONS}`",
            is_none_of(_INDEX_DEFINITIONS),
            f"but lakemark stores index definitions in {_INDEX_DEFINITIONS}",
            _ANOTHER_PATH,
        ),
    ),
    _ignored(
        keys.SECONDARY_INDEXES_METADATA,
        "indexes of Hudi 0.13, which queries of lakemark do not use",
        Refusal(
            _MAINTAIN,
            ANY_VALUE,
            is_set,
            "but lakemark does not update this index",
            _ANOTHER_PATH,
        ),
    ),
)

_CHANGES = (
    _honoured(
        keys.CDC_ENABLED,
        "in a copy-on-write table, each changed base file gets a `.cdc` file",
    ),
    PropertyRule(
        keys.CDC_LOGGING_MODE,
        _HONOUR,
        _HONOUR,
        "the content of `.cdc` files",
        (
            Refusal(
                _WRITE,
                "unknown modes",
                is_unknown_logging_mode,
                "which lakemark does not know, so it cannot tell which images of a change readers "
                "need",
                "set it to DATA_BEFORE_AFTER, DATA_BEFORE or OP_KEY_ONLY, as the other writers of "
                "the table do",
            ),
        ),
    ),
)

_BOOTSTRAP = (
    _honoured(
        keys.BOOTSTRAP_BASE_PATH,
        "some columns are only in the files from which the table was bootstrapped",
        Refusal(
            _READ,
            ANY_VALUE,
            is_set,
            "so some columns are only in the files from which the table was bootstrapped, and "
            "lakemark does not read these files",
            "rewrite the table with Apache Hudi",
        ),
    ),
    *(
        _ignored(key, f"it has an effect only with `{keys.BOOTSTRAP_BASE_PATH}`")
        for key in (
            keys.BOOTSTRAP_INDEX_ENABLE,
            keys.BOOTSTRAP_INDEX_CLASS,
            keys.BOOTSTRAP_INDEX_TYPE,
        )
    ),
)

#: The rule of keys that begin neither with ``hoodie.`` nor with ``lakemark.``.
USER_NOTES = _ignored(
    "(other keys than `hoodie.…` and `lakemark.…`)",
    "notes of users; Apache Hudi reads none of them",
)

#: All rules, by the sections of the documentation page.
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
