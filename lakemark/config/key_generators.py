"""The key generators of Apache Hudi: the type and the class that tables store for each.

Tables of version 8 and later store the type. Releases before 1.0 store only the class. A class that
a user implemented has the type ``USER_PROVIDED``.
Source: ``KeyGeneratorType`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

USER_PROVIDED = "USER_PROVIDED"


#: The types of the partition fields of ``CUSTOM``; a folder is a value, or a formatted time.
SIMPLE_FIELD = "SIMPLE"
TIMESTAMP_FIELD = "TIMESTAMP"


class KeyGeneratorType(StrEnum):
    """The key generators that lakemark implements; the values are the stored types.

    ``TIMESTAMP`` formats the times of its partition field. Since table version 8, tables with
    ``CUSTOM`` store each partition field as ``field:SIMPLE`` or ``field:TIMESTAMP``.
    """

    SIMPLE = "SIMPLE"
    COMPLEX = "COMPLEX"
    NON_PARTITION = "NON_PARTITION"
    TIMESTAMP = "TIMESTAMP"
    CUSTOM = "CUSTOM"


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


def class_of_type(stored_type: str) -> str | None:
    """Return the Java class of a stored type; None for ``USER_PROVIDED`` and unknown types."""
    return _CLASSES.get(stored_type)


def type_of_class(class_name: str) -> str:
    """Return the type of a stored Java class; ``USER_PROVIDED`` for unknown classes."""
    return next((kind for kind, name in _CLASSES.items() if name == class_name), USER_PROVIDED)


def find_implemented(stored_type: str) -> KeyGeneratorType | None:
    """Return the key generator of a stored type; None if lakemark does not implement it.

    Hudi has two types for each key generator: one for Avro records, which ends with ``_AVRO``, and
    one for rows.
    """
    try:
        return KeyGeneratorType(stored_type.removesuffix("_AVRO"))
    except ValueError:
        return None


def infer_key_generator(
    record_key_fields: tuple[str, ...], partition_fields: tuple[str, ...]
) -> KeyGeneratorType:
    """Infer the key generator as Apache Hudi does (``KeyGenUtils.inferKeyGeneratorType``).

    Without record key fields, the keys are automatic, and the partition fields decide.
    """
    if not partition_fields:
        return KeyGeneratorType.NON_PARTITION
    if len(record_key_fields) <= 1 and len(partition_fields) == 1:
        return KeyGeneratorType.SIMPLE
    return KeyGeneratorType.COMPLEX
