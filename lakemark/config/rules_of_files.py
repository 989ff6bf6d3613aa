"""The rules of the properties about files: base files, logs, change data and bootstrap files."""

from __future__ import annotations

from lakemark.config import keys
from lakemark.config.property_predicates import (
    has_bloom_filters_without_meta_columns,
    has_cdc_without_meta_columns,
    has_unwritable_virtual_keys,
    is_none_of,
    is_set,
    is_true,
    is_unknown_logging_mode,
)
from lakemark.config.property_rule import (
    ANOTHER_PATH,
    ANY_VALUE,
    DROP_METADATA_TABLE,
    ONLY_APACHE,
    Effect,
    PropertyRule,
    Purpose,
    Refusal,
    honoured,
    ignored,
)

_UNREAD_BASE_FORMAT = Refusal(
    Purpose.READ,
    "values other than `PARQUET` and `HFILE`",
    is_none_of("PARQUET", "HFILE"),
    "but lakemark cannot read base files of that format",
    ONLY_APACHE,
)
_UNWRITTEN_BASE_FORMAT = Refusal(
    Purpose.MAINTAIN,
    "values other than `PARQUET`",
    is_none_of("PARQUET"),
    "but lakemark writes base files only as Parquet",
    ANOTHER_PATH,
)
_UNREAD_LOG_FORMAT = Refusal(
    Purpose.READ,
    "values other than `HOODIE_LOG`",
    is_none_of("HOODIE_LOG"),
    "but lakemark cannot read log files of that format",
    ONLY_APACHE,
)

FILE_RULES = (
    honoured(
        keys.BASE_FILE_FORMAT,
        "format of new base files; files are read in the format that their extensions name",
        _UNREAD_BASE_FORMAT,
        _UNWRITTEN_BASE_FORMAT,
    ),
    honoured(
        keys.OLD_BASE_FILE_FORMAT,
        f"another name of `{keys.BASE_FILE_FORMAT}`",
        _UNREAD_BASE_FORMAT,
        _UNWRITTEN_BASE_FORMAT,
    ),
    honoured(keys.LOG_FILE_FORMAT, "there is only one format", _UNREAD_LOG_FORMAT),
    honoured(
        keys.OLD_LOG_FILE_FORMAT, f"another name of `{keys.LOG_FILE_FORMAT}`", _UNREAD_LOG_FORMAT
    ),
    ignored(
        keys.MULTIPLE_BASE_FILE_FORMATS,
        "files are read in the format that their extensions name",
        Refusal(
            Purpose.MAINTAIN,
            "`true`",
            is_true,
            "but lakemark writes base files only as Parquet",
            ANOTHER_PATH,
        ),
    ),
    honoured(
        keys.POPULATE_META_FIELDS,
        "if rows have no stored record key, it is generated from the record key fields",
        Refusal(
            Purpose.MAINTAIN,
            f"`false`, if `{keys.CDC_ENABLED}` is `true`",
            has_cdc_without_meta_columns,
            "but lakemark stores no change data of rows without meta columns",
            ANOTHER_PATH,
        ),
        Refusal(
            Purpose.MAINTAIN,
            "`false`, if the metadata table has `bloom_filters`",
            has_bloom_filters_without_meta_columns,
            "but files without meta columns have no bloom filters to store in the metadata table",
            DROP_METADATA_TABLE,
        ),
        Refusal(
            Purpose.MAINTAIN,
            "`false`, if the key generator is not `SIMPLE`, `NON_PARTITION` or `COMPLEX`; with "
            "`COMPLEX` and one record key field; on merge-on-read, with a partition field in the "
            "record key; or if the table stores change data or `bloom_filters`",
            has_unwritable_virtual_keys,
            "but without meta columns, Apache Hudi reads only keys of the key generators SIMPLE, "
            "NON_PARTITION and, with several record key fields, COMPLEX; and a merge-on-read table "
            "needs a record key without partition columns",
            ANOTHER_PATH,
        ),
    ),
    ignored(
        keys.PARTITION_METAFILE_USE_BASE_FORMAT,
        "lakemark finds partition metafiles in any format, and writes them as text, for which "
        "Apache Hudi looks first",
    ),
)

CHANGE_RULES = (
    honoured(
        keys.CDC_ENABLED,
        "in a copy-on-write table, each changed base file gets a `.cdc` file",
    ),
    PropertyRule(
        keys.CDC_LOGGING_MODE,
        Effect.HONOUR,
        Effect.HONOUR,
        "the content of `.cdc` files",
        (
            Refusal(
                Purpose.WRITE,
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

BOOTSTRAP_RULES = (
    honoured(
        keys.BOOTSTRAP_BASE_PATH,
        "some columns are only in the files from which the table was bootstrapped",
        Refusal(
            Purpose.READ,
            ANY_VALUE,
            is_set,
            "so some columns are only in the files from which the table was bootstrapped, and "
            "lakemark does not read these files",
            "rewrite the table with Apache Hudi",
        ),
    ),
    *(
        ignored(key, f"it has an effect only with `{keys.BOOTSTRAP_BASE_PATH}`")
        for key in (
            keys.BOOTSTRAP_INDEX_ENABLE,
            keys.BOOTSTRAP_INDEX_CLASS,
            keys.BOOTSTRAP_INDEX_TYPE,
        )
    ),
)
