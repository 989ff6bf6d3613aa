"""The rules of the properties that decide how changes to a record are merged."""

from __future__ import annotations

from lakemark.config import keys
from lakemark.config.merge_settings import PAYLOAD_CLASSES, PartialUpdateMode
from lakemark.config.property_predicates import (
    is_custom_without_rules,
    is_set,
    is_unknown_partial_update,
    is_unknown_payload,
)
from lakemark.config.property_rule import (
    ANOTHER_PATH,
    ANY_VALUE,
    REMOVE_PROPERTY,
    Purpose,
    Refusal,
    honoured,
    ignored,
)

MERGING_RULES = (
    honoured(keys.ORDERING_FIELDS, "must equal the pipeline's"),
    honoured(
        keys.PRECOMBINE_FIELD,
        f"the name of `{keys.ORDERING_FIELDS}` before version 9, with the same rule",
    ),
    honoured(
        keys.MERGE_MODE,
        "decides which of two records wins",
        Refusal(
            Purpose.MAINTAIN,
            "`CUSTOM` without a merge strategy or a payload",
            is_custom_without_rules,
            "but the table names neither a merge strategy nor a payload class",
            f"set {keys.MERGE_STRATEGY_ID}",
        ),
    ),
    honoured(keys.MERGE_STRATEGY_ID, "the id of the table's merger; a user's merger must have it"),
    honoured(
        keys.OLD_MERGE_STRATEGY_ID, f"the name of `{keys.MERGE_STRATEGY_ID}` before version 8"
    ),
    honoured(
        keys.PAYLOAD_CLASS,
        "queries that merge logs also refuse an unknown payload",
        Refusal(
            Purpose.MAINTAIN,
            "unsupported payloads",
            is_unknown_payload,
            f"but lakemark supports only the payloads {', '.join(PAYLOAD_CLASSES)}",
            ANOTHER_PATH,
        ),
    ),
    honoured(keys.LEGACY_PAYLOAD_CLASS, "if the pipeline names a payload, it must be this one"),
    honoured(
        keys.PARTIAL_UPDATE_MODE,
        "queries that merge logs also refuse an unknown mode",
        Refusal(
            Purpose.MAINTAIN,
            "values other than `IGNORE_DEFAULTS` and `FILL_UNAVAILABLE`",
            is_unknown_partial_update,
            f"but lakemark supports only the modes {', '.join(PartialUpdateMode)}",
            ANOTHER_PATH,
        ),
    ),
    honoured(keys.DELETE_FIELD, "rows with the delete marker in this column are deletes"),
    honoured(keys.DELETE_MARKER, "the text that marks a row as a delete"),
    honoured(keys.UNAVAILABLE_VALUE, "the text that partial updates replace"),
    ignored(
        keys.MERGE_PROPERTIES,
        "options of a user's merger",
        Refusal(
            Purpose.MAINTAIN,
            ANY_VALUE,
            is_set,
            "which is a merge option that lakemark does not know",
            REMOVE_PROPERTY,
        ),
    ),
)
