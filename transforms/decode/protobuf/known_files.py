"""Files that every schema may import, although no registry stores them.

Source: ``google/protobuf/*.proto`` of Protocol Buffers, and ``confluent/type/decimal.proto``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from transforms.decode.protobuf.declarations import FileDeclaration
from transforms.decode.protobuf.proto_text import parse_proto

_GOOGLE = """
syntax = "proto3";
package google.protobuf;
message Timestamp { int64 seconds = 1; int32 nanos = 2; }
message Duration { int64 seconds = 1; int32 nanos = 2; }
message DoubleValue { double value = 1; }
message FloatValue { float value = 1; }
message Int64Value { int64 value = 1; }
message UInt64Value { uint64 value = 1; }
message Int32Value { int32 value = 1; }
message UInt32Value { uint32 value = 1; }
message BoolValue { bool value = 1; }
message StringValue { string value = 1; }
message BytesValue { bytes value = 1; }
message Any { string type_url = 1; bytes value = 2; }
message FieldMask { repeated string paths = 1; }
message Empty {}
message SourceContext { string file_name = 1; }
enum NullValue { NULL_VALUE = 0; }
message Struct { map<string, Value> fields = 1; }
message Value {
  oneof kind {
    NullValue null_value = 1;
    double number_value = 2;
    string string_value = 3;
    bool bool_value = 4;
    Struct struct_value = 5;
    ListValue list_value = 6;
  }
}
message ListValue { repeated Value values = 1; }
"""

_CONFLUENT = """
syntax = "proto3";
package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
"""

_TYPE_FILES = (
    "any",
    "duration",
    "empty",
    "field_mask",
    "source_context",
    "struct",
    "timestamp",
    "wrappers",
)


@lru_cache(maxsize=1)
def known_files() -> Mapping[str, FileDeclaration]:
    """Return the declarations of each file, by the name with which it is imported."""
    google = parse_proto(_GOOGLE)
    return {
        **{f"google/protobuf/{name}.proto": google for name in _TYPE_FILES},
        "confluent/type/decimal.proto": parse_proto(_CONFLUENT),
    }
