"""Writes HFiles as Apache Hudi 1.2.0 does, and with more index levels as HBase does."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Entry = tuple[bytes, bytes]
#: First key, offset and size of a block.
Place = tuple[bytes, int, int]

GZ, NONE = 1, 2
_HBASE_SUFFIX = b"\x00" + b"\x7f" + b"\xff" * 7 + b"\x04"


@dataclass
class HFileBuilder:
    """Builds an HFile.

    Attributes:
        compression: ordinal of the codec.
        block_bytes: a data block is full once its content has this many bytes.
        fanout: how many blocks an index block below the root names.
        levels: levels of the index.
        checksum_bytes: how many bytes follow each block in place of HBase's checksums.
    """

    compression: int = GZ
    block_bytes: int = 64 << 10
    fanout: int = 2
    levels: int = 1
    checksum_bytes: int = 4
    info: Mapping[bytes, bytes] = field(default_factory=dict)
    meta_blocks: Mapping[bytes, bytes] = field(default_factory=dict)

    def build(self, entries: Iterable[Entry]) -> bytes:
        self._file = bytearray()
        entries = list(entries)
        locations = [
            self._add(b"DATABLK*", b"".join(_stored(*e) for e in block), block[0][0])
            for block in self._blocks(entries)
        ]
        for level in range(self.levels - 1):
            magic = b"IDXLEAF2" if level == 0 else b"IDXINTE2"
            locations = [
                self._add(magic, _index(group), group[0][0])
                for group in _grouped(locations, self.fanout)
            ]
        meta = [self._add(b"METABLKc", v, name) for name, v in self.meta_blocks.items()]
        load_on_open = len(self._file)
        self._add(b"IDXROOT2", b"".join(_root_entry(_row(key), o, s) for key, o, s in locations))
        self._add(b"IDXROOT2", b"".join(_root_entry(key, o, s) for key, o, s in meta))
        self._add(b"FILEINF2", _file_info({**_INFO, **self.info}))
        fields = {2: load_on_open, 5: len(locations), 6: len(meta), 7: len(entries)}
        self._file += _trailer({**fields, 8: self.levels, 12: self.compression})
        return bytes(self._file)

    def _blocks(self, entries: Sequence[Entry]) -> Iterable[list[Entry]]:
        """Divide the entries into blocks; entries of one key stay in one block."""
        block: list[Entry] = []
        size = 0
        for key, value in entries:
            if block and size >= self.block_bytes and key != block[-1][0]:
                yield block
                block, size = [], 0
            block.append((key, value))
            size += len(_stored(key, value))
        if block:
            yield block

    def _add(self, magic: bytes, content: bytes, key: bytes = b"") -> Place:
        packed = gzip.compress(content, mtime=0) if self.compression == GZ else content
        checksums = bytes(self.checksum_bytes)
        sizes = struct.pack(">iiqBii", len(packed) + len(checksums), len(content), -1, 0, 16384,
                            33 + len(packed))  # fmt: skip
        block = magic + sizes + packed + checksums
        location = key, len(self._file), len(block)
        self._file += block
        return location


_INFO = {b"KEY_VALUE_VERSION": struct.pack(">i", 1), b"MAX_MEMSTORE_TS_KEY": struct.pack(">q", 0)}


def _stored(key: bytes, value: bytes) -> bytes:
    lengths = struct.pack(">ii", len(key) + 12, len(value))
    return lengths + _row(key) + _HBASE_SUFFIX + value + b"\x00"


def _row(key: bytes) -> bytes:
    return struct.pack(">h", len(key)) + key


def _index(group: Sequence[Place]) -> bytes:
    entries = [struct.pack(">qi", o, s) + _row(key) + _HBASE_SUFFIX for key, o, s in group]
    offsets = [sum(map(len, entries[:n])) for n in range(len(entries) + 1)]
    return struct.pack(f">{len(offsets) + 1}i", len(entries), *offsets) + b"".join(entries)


def _root_entry(key: bytes, offset: int, size: int) -> bytes:
    return struct.pack(">qi", offset, size) + hadoop_vint(len(key)) + key


def hadoop_vint(value: int) -> bytes:
    """Encode a value that is not negative like Hadoop's ``WritableUtils.writeVInt``."""
    if value <= 127:
        return bytes([value])
    digits = value.to_bytes((value.bit_length() + 7) // 8)
    return struct.pack(">b", -112 - len(digits)) + digits


def _file_info(info: Mapping[bytes, bytes]) -> bytes:
    pairs = [_field(1, _field(1, name) + _field(2, value)) for name, value in info.items()]
    message = b"".join(pairs)
    return b"PBUF" + _varint(len(message)) + message


def _trailer(fields: Mapping[int, int]) -> bytes:
    message = b"".join(_varint(n << 3) + _varint(value) for n, value in fields.items())
    message += _field(11, b"org.apache.hudi.io.storage.HoodieHBaseKVComparator")
    body = b'TRABLK"$' + _varint(len(message)) + message
    return body.ljust(4092, b"\x00") + b"\x00\x00\x00\x03"


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


def _grouped(locations: Sequence[Place], size: int) -> list[Sequence[Place]]:
    return [locations[at : at + size] for at in range(0, len(locations), size)]
