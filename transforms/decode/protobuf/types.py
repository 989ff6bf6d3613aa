"""Types of messages whose names are resolved, with the types of their columns.

scalars, enums     columns that are null only if the field has a presence of its own and is absent;
                   otherwise an absent field has its default value (0, false, "", the first value)
uint32, fixed32    ``bigint``
uint64, fixed64    ``decimal(20,0)``
enum               the name of the value; the digits of a number that the schema does not name
message            a struct, null if it is absent
repeated, map      an array, and a map whose keys are text
Timestamp          a timestamp in microseconds, rounded down
Duration           a number of microseconds, rounded down
wrappers           a column of the wrapped type, null if it is absent
Struct, Value,     JSON as text
ListValue
without fields     ``true``, or null if it is absent
inside itself      the bytes of the message, where a message contains its own type again

Source: "Encoding" and "ProtoJSON Format" of the documentation of Protocol Buffers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum

import pyarrow as pa

#: Any number of 64 bits without a sign.
UNSIGNED = pa.decimal128(20, 0)


class Kind(StrEnum):
    """The type of a field; scalar types have their names in ``.proto`` files."""

    DOUBLE = "double"
    FLOAT = "float"
    INT32 = "int32"
    INT64 = "int64"
    UINT32 = "uint32"
    UINT64 = "uint64"
    SINT32 = "sint32"
    SINT64 = "sint64"
    FIXED32 = "fixed32"
    FIXED64 = "fixed64"
    SFIXED32 = "sfixed32"
    SFIXED64 = "sfixed64"
    BOOL = "bool"
    STRING = "string"
    BYTES = "bytes"
    ENUM = "enum"
    MESSAGE = "message"


class Form(Enum):
    """What a message becomes."""

    STRUCT = "struct"
    TIMESTAMP = "timestamp"
    DURATION = "duration"
    WRAPPER = "wrapper"
    JSON = "json"
    PRESENCE = "presence"
    BYTES = "bytes"


VARINT, FIXED64, LENGTH, START_GROUP, END_GROUP, FIXED32 = range(6)

_WIRE_TYPES = {
    Kind.DOUBLE: FIXED64,
    Kind.FIXED64: FIXED64,
    Kind.SFIXED64: FIXED64,
    Kind.FLOAT: FIXED32,
    Kind.FIXED32: FIXED32,
    Kind.SFIXED32: FIXED32,
    Kind.STRING: LENGTH,
    Kind.BYTES: LENGTH,
    Kind.MESSAGE: LENGTH,
}

_ARROW_TYPES = {
    Kind.DOUBLE: pa.float64(),
    Kind.FLOAT: pa.float32(),
    Kind.INT32: pa.int32(),
    Kind.SINT32: pa.int32(),
    Kind.SFIXED32: pa.int32(),
    Kind.INT64: pa.int64(),
    Kind.SINT64: pa.int64(),
    Kind.SFIXED64: pa.int64(),
    Kind.UINT32: pa.int64(),
    Kind.FIXED32: pa.int64(),
    Kind.UINT64: UNSIGNED,
    Kind.FIXED64: UNSIGNED,
    Kind.BOOL: pa.bool_(),
    Kind.STRING: pa.string(),
    Kind.BYTES: pa.binary(),
    Kind.ENUM: pa.string(),
}

_FORM_TYPES = {
    Form.TIMESTAMP: pa.timestamp("us", "UTC"),
    Form.DURATION: pa.int64(),
    Form.JSON: pa.string(),
    Form.PRESENCE: pa.bool_(),
    Form.BYTES: pa.binary(),
}


@dataclass(frozen=True, slots=True, eq=False)
class MessageType:
    """A message.

    Attributes:
        name: the full name.
        fields: the fields. Only a struct, a wrapper, a timestamp and a duration need them.
        form: what the message becomes.
        arrow: the type of its column.
    """

    name: str
    fields: tuple[Field, ...]
    form: Form
    arrow: pa.DataType = field(init=False)

    def __post_init__(self) -> None:
        if self.form is Form.STRUCT:
            arrow = pa.struct([pa.field(one.name, one.arrow) for one in self.fields])
        elif self.form is Form.WRAPPER:
            arrow = self.fields[0].arrow
        else:
            arrow = _FORM_TYPES[self.form]
        object.__setattr__(self, "arrow", arrow)


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A field of a message.

    Attributes:
        name: the name.
        number: the number that identifies the field.
        kind: the type of the value, of the elements, or of the entries of a map (messages of a
            ``key`` and a ``value``).
        is_repeated: whether the field has elements or entries.
        is_map: whether the field is a map.
        is_required: whether a message without the field is not valid.
        has_presence: whether the column is null if the field is absent.
        oneof: the name of the ``oneof`` that contains the field.
        message: the type of a message.
        symbols: the name of each number of an enum.
        arrow: the type of the column.
    """

    name: str
    number: int
    kind: Kind
    is_repeated: bool = False
    is_map: bool = False
    is_required: bool = False
    has_presence: bool = False
    oneof: str | None = None
    message: MessageType | None = None
    symbols: tuple[tuple[int, str], ...] = ()
    arrow: pa.DataType = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrow", self._column_type())

    @property
    def item_type(self) -> pa.DataType:
        """The type of a value, or of an element."""
        return _ARROW_TYPES[self.kind] if self.message is None else self.message.arrow

    @property
    def wire_type(self) -> int:
        """The wire type of a value; elements may also be packed."""
        return _WIRE_TYPES.get(self.kind, VARINT)

    @property
    def is_packable(self) -> bool:
        """Whether elements may be packed into one field of the wire type ``LENGTH``."""
        return self.is_repeated and self.wire_type != LENGTH

    def _column_type(self) -> pa.DataType:
        if self.is_map:
            assert self.message is not None, self.name
            return pa.map_(pa.string(), pa.field("value", self.message.fields[1].arrow))
        if self.is_repeated:
            return pa.list_(pa.field("element", self.item_type))
        return self.item_type
