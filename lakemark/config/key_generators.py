"""The key generators of Apache Hudi, by the word and by the class that tables store.

Tables of version 8 and later store the word; releases before 1.0 know the class alone. A class that
is not Apache Hudi's own has the word ``USER_PROVIDED``. Source: ``KeyGeneratorType`` of Apache Hudi
1.2.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

USER_PROVIDED = "USER_PROVIDED"

#: Stores ``field:SIMPLE`` or ``field:TIMESTAMP`` as partition fields, from version 8 on.
CUSTOM = "CUSTOM"


class KeyGeneratorType(StrEnum):
    """The key generators that are implemented here; the value is the stored word."""

    SIMPLE = "SIMPLE"
    COMPLEX = "COMPLEX"
    NON_PARTITION = "NON_PARTITION"


_KEYGEN = "org.apache.hudi.keygen."
_SPARK_SQL = "org.apache.spark.sql.hudi.command."

_CLASSES: Mapping[str, str] = {
    "SIMPLE": f"{_KEYGEN}SimpleKeyGenerator",
    "SIMPLE_AVRO": f"{_KEYGEN}SimpleAvroKeyGenerator",
    "COMPLEX": f"{_KEYGEN}ComplexKeyGenerator",
    "COMPLEX_AVRO": f"{_KEYGEN}ComplexAvroKeyGenerator",
    "TIMESTAMP": f"{_KEYGEN}TimestampBasedKeyGenerator",
    "TIMESTAMP_AVRO": f"{_KEYGEN}TimestampBasedAvroKeyGenerator",
    "CUSTOM": f"{_KEYGEN}CustomKeyGenerator",
    "CUSTOM_AVRO": f"{_KEYGEN}CustomAvroKeyGenerator",
    "NON_PARTITION": f"{_KEYGEN}NonpartitionedKeyGenerator",
    "NON_PARTITION_AVRO": f"{_KEYGEN}NonpartitionedAvroKeyGenerator",
    "GLOBAL_DELETE": f"{_KEYGEN}GlobalDeleteKeyGenerator",
    "GLOBAL_DELETE_AVRO": f"{_KEYGEN}GlobalAvroDeleteKeyGenerator",
    "AUTO_RECORD": f"{_KEYGEN}AutoRecordGenWrapperKeyGenerator",
    "AUTO_RECORD_AVRO": f"{_KEYGEN}AutoRecordGenWrapperAvroKeyGenerator",
    "HOODIE_TABLE_METADATA": "org.apache.hudi.metadata.HoodieTableMetadataKeyGenerator",
    "SPARK_SQL": f"{_SPARK_SQL}SqlKeyGenerator",
    "SPARK_SQL_UUID": f"{_SPARK_SQL}UuidKeyGenerator",
    "SPARK_SQL_MERGE_INTO": f"{_SPARK_SQL}MergeIntoKeyGenerator",
}


def class_of_word(word: str) -> str | None:
    """The class of a stored word; None for ``USER_PROVIDED`` and for unknown words."""
    return _CLASSES.get(word)


def word_of_class(class_name: str) -> str:
    """The word of a stored class."""
    return next((word for word, name in _CLASSES.items() if name == class_name), USER_PROVIDED)


def implemented(word: str) -> KeyGeneratorType | None:
    """The key generator that a word means, whether it reads Avro or rows; None if not ours."""
    try:
        return KeyGeneratorType(word.removesuffix("_AVRO"))
    except ValueError:
        return None


def implied_by_fields(
    record_key_fields: tuple[str, ...], partition_fields: tuple[str, ...]
) -> KeyGeneratorType:
    """The key generator that Apache Hudi infers (``KeyGenUtils.inferKeyGeneratorType``)."""
    if not partition_fields:
        return KeyGeneratorType.NON_PARTITION
    if len(record_key_fields) == 1 and len(partition_fields) == 1:
        return KeyGeneratorType.SIMPLE
    return KeyGeneratorType.COMPLEX
