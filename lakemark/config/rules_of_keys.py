"""The rules of the properties about record keys and partition paths."""

from __future__ import annotations

from lakemark.config import keys
from lakemark.config.property_predicates import (
    drops_unreadable_columns,
    extracts_unstored_slashes,
    formats_with_old_options,
    has_other_parser,
    has_unknown_expressions,
    has_unwritable_dates,
    has_unwritable_time,
    is_true,
    is_unknown_generator,
    is_unknown_generator_class,
    lacks_partition_types,
)
from lakemark.config.property_rule import (
    ANOTHER_PATH,
    ONLY_APACHE,
    Purpose,
    Refusal,
    honoured,
    ignored,
)
from lakemark.config.time_folders import stored_unit, stored_zone
from lakemark.config.time_pattern import TimePattern

_UNWRITTEN_GENERATOR = "but lakemark does not implement this key generator"

KEY_RULES = (
    honoured(keys.RECORD_KEY_FIELDS, "must equal the pipeline's"),
    honoured(
        keys.PARTITION_FIELDS,
        "must equal the pipeline's",
        Refusal(
            Purpose.WRITE,
            "fields without a type, with the key generator `CUSTOM`",
            lacks_partition_types,
            "so the table does not show which of them are formatted times",
            "change the table to version 8 or 9 (lakemark table upgrade), or write to another path",
        ),
    ),
    honoured(
        keys.KEY_GENERATOR_TYPE,
        "keys and partition paths must be those that Apache Hudi generates",
        Refusal(
            Purpose.WRITE,
            "values other than `SIMPLE`, `COMPLEX`, `TIMESTAMP`, `CUSTOM`, `NON_PARTITION`, with "
            "`_AVRO` or without",
            is_unknown_generator,
            _UNWRITTEN_GENERATOR,
            ANOTHER_PATH,
        ),
    ),
    honoured(
        keys.KEY_GENERATOR_CLASS,
        "like the type; Hudi releases that write table version 6 store only the class",
        Refusal(
            Purpose.WRITE,
            "classes of other key generators, and classes of users",
            is_unknown_generator_class,
            _UNWRITTEN_GENERATOR,
            ANOTHER_PATH,
        ),
    ),
    honoured(
        keys.PARTITION_EXPRESSIONS,
        "a property of lakemark: partition columns that are computed from other columns",
        Refusal(
            Purpose.WRITE,
            "unknown expressions, and columns that are not partition columns",
            has_unknown_expressions,
            "so lakemark cannot compute the partition columns of new rows",
            "write with the version of lakemark that created the table, or correct the property",
        ),
    ),
    honoured(keys.HIVE_STYLE_PARTITIONING, "must equal the pipeline's"),
    honoured(keys.URL_ENCODE_PARTITIONING, "must equal the pipeline's"),
    honoured(
        keys.SLASH_SEPARATED_DATES,
        "dates are in yyyy/MM/dd folders; must equal the pipeline's",
        Refusal(
            Purpose.WRITE,
            "`true` with Hive-style folders, with several partition columns, or with another key "
            "generator than `SIMPLE` and `COMPLEX`",
            has_unwritable_dates,
            "but with Hive-style folders, several partition columns or this key generator, Apache "
            "Hudi writes one value to different folders, so a key would get a second row",
            ANOTHER_PATH,
        ),
    ),
    ignored(
        keys.PARTITION_EXTRACTOR_CLASS,
        "it parses paths for catalogs; only tables that Apache Hudi created by SQL store the "
        "property above, so that in others only this one shows that dates are slash-separated",
        Refusal(
            Purpose.WRITE,
            "extractors of slash-separated dates, unless the property above is `true`",
            extracts_unstored_slashes,
            f"but {keys.SLASH_SEPARATED_DATES} is not stored, so writers do not know whether dates "
            "are in yyyy/MM/dd folders",
            f"if the folders are yyyy/MM/dd and the rows have yyyy-MM-dd, store "
            f"{keys.SLASH_SEPARATED_DATES}=true in .hoodie/hoodie.properties; otherwise write with "
            "Apache Hudi, or write to another path",
        ),
    ),
    honoured(
        keys.DROP_PARTITION_COLUMNS,
        "the files lack the partition columns, which are read from the path",
        Refusal(
            Purpose.READ,
            "`true` on merge-on-read, or if a folder is not the value of one column",
            drops_unreadable_columns,
            "so the files lack the partition columns; lakemark reads them from the path only if "
            "the table is copy-on-write and each folder is the value of one column",
            ONLY_APACHE,
        ),
        Refusal(
            Purpose.MAINTAIN,
            "`true`",
            is_true,
            "but lakemark does not write files without the partition columns",
            ANOTHER_PATH,
        ),
    ),
    honoured(
        keys.TIMESTAMP_TYPE,
        "the unit of the times in partition columns",
        Refusal(
            Purpose.WRITE,
            "`DATE_STRING`, `MIXED`, unknown values and no value, if a folder is a formatted time",
            has_unwritable_time(stored_unit),
            "but lakemark formats only numbers, timestamps and dates as folders, as the table says",
            "if the table's writers set hoodie.keygen.timebased.… as options only, store them in "
            ".hoodie/hoodie.properties; otherwise write with Apache Hudi",
        ),
    ),
    honoured(keys.TIMESTAMP_SCALAR_UNIT, f"the unit, if `{keys.TIMESTAMP_TYPE}` is `SCALAR`"),
    honoured(
        keys.TIMESTAMP_OUTPUT_FORMAT,
        "must equal the pipeline's",
        Refusal(
            Purpose.WRITE,
            "other letters than `y`, `M`, `d`, `H`, `m` and `s`, if a folder is a formatted time",
            has_unwritable_time(
                lambda values: TimePattern.parse(values.get(keys.TIMESTAMP_OUTPUT_FORMAT, ""))
            ),
            "which is not a pattern that lakemark can format",
            ANOTHER_PATH,
        ),
    ),
    honoured(
        keys.TIMESTAMP_ZONE,
        "must equal the pipeline's",
        Refusal(
            Purpose.WRITE,
            f"unknown zones, and no zone here or in `{keys.TIMESTAMP_OUTPUT_ZONE}`, if a folder is "
            "a formatted time",
            has_unwritable_time(stored_zone),
            "so the time zone of the folders is not certain",
            "set it to the time zone in which the folders were written",
        ),
    ),
    honoured(keys.TIMESTAMP_OUTPUT_ZONE, f"the zone, if `{keys.TIMESTAMP_ZONE}` is not set"),
    honoured(
        keys.TIMESTAMP_PARSER,
        "the class that reads these properties",
        Refusal(
            Purpose.WRITE,
            "classes of users, if a folder is a formatted time",
            has_other_parser,
            "which lakemark cannot run",
            ANOTHER_PATH,
        ),
    ),
    ignored(
        keys.OLD_TIMESTAMP_OPTIONS,
        "only the TIMESTAMP and CUSTOM key generators use it",
        Refusal(
            Purpose.WRITE,
            "any value, if a folder is a formatted time",
            formats_with_old_options,
            "an option of Hudi before 0.14 that lakemark does not apply",
            "store the option under its new name, hoodie.keygen.timebased.…",
        ),
    ),
    *(
        ignored(key, "it applies only to times that are stored as text")
        for key in (
            keys.TIMESTAMP_INPUT_FORMAT,
            keys.TIMESTAMP_INPUT_DELIMITER,
            keys.TIMESTAMP_INPUT_ZONE,
        )
    ),
)
