"""Reads and writes the bloom filter of a base file, which shows if the file may contain a key.

    SIMPLE       int -1 (version), int number of hashes, byte 1 (Murmur), int number of bits;
                 then the bits, lowest first
    DYNAMIC_V0   the same header; int keys per row, int keys added since the last row was added,
                 int number of rows; then each row as a SIMPLE filter

Integers are big-endian, and the filter is encoded in Base64. Each key sets one bit per hash. The
bit is ``abs(h % bits)``, where ``h`` is the Murmur2 hash of the key. The seed of the first hash is
0, and each hash is the seed of the next one. A dynamic filter adds a row when the last row has
received its number of keys. Once it has the maximum number of rows, it adds keys to the existing
rows in turn.

Source: ``InternalBloomFilter``, ``InternalDynamicBloomFilter`` (``org.apache.hudi.common.bloom``)
and ``HoodieBloomFilterWriteSupport`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.byte_strings import ByteStrings, byte_strings
from lakemark.codec.murmur2 import Murmur2
from lakemark.codec.utf16_order import TO_UTF16_ORDER, utf16_order
from lakemark.errors import CorruptData, InvalidRecords, Unsupported

BLOOM_FILTER = "org.apache.hudi.bloomfilter"
TYPE_CODE = "hoodie_bloom_filter_type_code"
MIN_RECORD_KEY = "hoodie_min_record_key"
MAX_RECORD_KEY = "hoodie_max_record_key"

SIMPLE = "SIMPLE"
DYNAMIC_V0 = "DYNAMIC_V0"

#: Hudi's defaults: keys per row, rate of false positives of a full row, and the number of keys
#: after which the filter adds no more rows.
KEYS_PER_ROW = 60_000
FALSE_POSITIVES = 1e-9
MAX_KEYS = 100_000

_HEADER = struct.Struct(">iibi")
_ROWS = struct.Struct(">iii")
_VERSION, _MURMUR = -1, 1
_MAX_HASHES = 1_000

#: Number of key bytes hashed at a time, so that the words of the keys stay in the CPU cache.
_CHUNK_BYTES = 1 << 17


class BloomFilterBuilder:
    """Collects the keys of one base file for its footer.

    Args:
        keys_per_row: capacity of a row of the filter.
        false_positives: rate at which a full row claims to contain a key that it does not contain.
        max_keys: keys after which no further row is added.
    """

    def __init__(
        self,
        keys_per_row: int = KEYS_PER_ROW,
        false_positives: float = FALSE_POSITIVES,
        max_keys: int = MAX_KEYS,
    ) -> None:
        self._keys_per_row = keys_per_row
        self._bits = math.ceil(keys_per_row * (-math.log(false_positives) / math.log(2) ** 2))
        self._hashes = math.ceil(math.log(2) * self._bits / keys_per_row)
        self._max_rows = math.ceil(max_keys / keys_per_row)
        self._key_count = 0
        self._set = np.zeros((1, self._bits), np.bool_)
        self._range: tuple[bytes, bytes] | None = None

    @classmethod
    def resume(
        cls, text_base64: str, type_code: str, key_range: tuple[bytes, bytes], path: str
    ) -> Self | None:
        """Continue the filter of a base file; None if it does not have Hudi's usual size.

        Args:
            text_base64: the filter, as ``BloomFilter.parse`` reads it.
            type_code: the type of the filter.
            key_range: the smallest and the largest key in the filter.
            path: the file, for messages.

        Raises:
            CorruptData, Unsupported: as for ``BloomFilter.parse``.
        """
        stored = BloomFilter.parse(text_base64, type_code, path)
        if type_code != DYNAMIC_V0:
            return None
        sizes = _ROWS.unpack_from(base64.b64decode(text_base64), _HEADER.size)
        keys_per_row, in_last_row, row_count = sizes
        builder = cls(keys_per_row)
        if (builder._hashes, builder._bits) != (stored.hash_count, stored.rows.shape[1]):
            return None
        builder._set, builder._range = stored.rows.copy(), key_range
        builder._key_count = (row_count - 1) * keys_per_row + in_last_row
        return builder

    @property
    def key_count(self) -> int:
        """The number of keys that were added."""
        return self._key_count

    def add(self, keys: pa.Array) -> None:
        """Add record keys; a key that is added twice counts twice towards the size of a row.

        Raises:
            InvalidRecords: a key is null or empty.
        """
        self.add_strings(_checked(keys))

    def add_strings(self, strings: ByteStrings) -> None:
        """Add record keys that are not empty."""
        count = len(strings.lengths)
        rows = self._rows_of_next(count)
        missing = int(rows.max(initial=0)) + 1 - len(self._set)
        if missing > 0:
            self._set = np.vstack([self._set, np.zeros((missing, self._bits), np.bool_)])
        for chunk_rows, chunk in strings.chunks(_CHUNK_BYTES):
            self._add(chunk, rows[chunk_rows])
        self._key_count += count
        self._extend_range(strings)

    def footer(self) -> dict[str, str]:
        """Return the key-value metadata of the Parquet footer.

        The smallest and the largest key are included only if there are keys.
        """
        metadata = {BLOOM_FILTER: base64.b64encode(self._to_bytes()).decode()}
        metadata[TYPE_CODE] = DYNAMIC_V0
        if self._range is not None:
            metadata[MIN_RECORD_KEY], metadata[MAX_RECORD_KEY] = map(bytes.decode, self._range)
        return metadata

    def _rows_of_next(self, count: int) -> npt.NDArray[np.int64]:
        """Return the row of the filter for each of the next keys."""
        ordinal = np.arange(self._key_count, self._key_count + count)
        beyond = ordinal - self._max_rows * self._keys_per_row
        # Hudi adds the first key beyond the maximum to row 0. The second one goes to row 0 again,
        # because the rotation through the rows starts with it.
        round_trip = np.where(beyond == 0, 0, (beyond - 1) % self._max_rows)
        return np.where(beyond < 0, ordinal // self._keys_per_row, round_trip)

    def _add(self, keys: ByteStrings, rows: npt.NDArray[np.int64]) -> None:
        murmur = Murmur2(keys)
        if murmur.order is not None:
            rows = rows[murmur.order]
        row_starts = (rows * self._bits).astype(np.uint32)
        flat = self._set.reshape(-1)
        hashes = np.zeros(len(rows), np.uint32)
        for _ in range(self._hashes):
            hashes = murmur.hash(hashes)
            flat[(_bit_of(hashes, self._bits) + row_starts).astype(np.intp)] = True

    def _extend_range(self, keys: ByteStrings) -> None:
        if not len(keys.lengths):
            return
        low, high = _key_range(keys)
        if self._range is not None:
            ordered = sorted([low, high, *self._range], key=utf16_order)
            low, high = ordered[0], ordered[-1]
        self._range = (low, high)

    def _to_bytes(self) -> bytes:
        header = _HEADER.pack(_VERSION, self._hashes, _MURMUR, self._bits)
        in_last_row = self._key_count - (len(self._set) - 1) * self._keys_per_row
        rows = [header + np.packbits(row, bitorder="little").tobytes() for row in self._set]
        return header + _ROWS.pack(self._keys_per_row, in_last_row, len(rows)) + b"".join(rows)


class FooterKeys:
    """Collects the record keys of one base file for its footer.

    The bloom filter is sized for the number of keys, up to Hudi's default of 60,000. Apache Hudi
    always uses the default size, so that even a file of one row has a bloom filter of 431 KB. It
    reads filters of any size, because the header states the size.
    """

    def __init__(self) -> None:
        self._waiting: list[ByteStrings] = []
        self._key_count = 0
        self._builder: BloomFilterBuilder | None = None

    def add(self, keys: pa.Array) -> None:
        """Add record keys.

        At most 60,000 keys, and the keys of one call, are in memory at a time.

        Raises:
            InvalidRecords: a key is null or empty.
        """
        self._waiting.append(_checked(keys))
        self._key_count += len(keys)
        if self._key_count > KEYS_PER_ROW:
            self._add_waiting()

    def entries(self) -> dict[str, str]:
        """Return the key-value metadata of the Parquet footer (``BloomFilterBuilder.footer``)."""
        return self._add_waiting().footer()

    def _add_waiting(self) -> BloomFilterBuilder:
        if self._builder is None:
            self._builder = BloomFilterBuilder(max(1, min(self._key_count, KEYS_PER_ROW)))
        for strings in self._waiting:
            self._builder.add_strings(strings)
        self._waiting.clear()
        return self._builder


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A bloom filter that was read from a base file.

    Attributes:
        hash_count: number of bits that each key sets.
        rows: boolean matrix, one line for each row of the filter. The file may contain a key if
            all bits of the key are set in one row. Otherwise it does not contain the key.
    """

    hash_count: int
    rows: npt.NDArray[np.bool_]

    @classmethod
    def parse(cls, text_base64: str, type_code: str, path: str = "bloom filter") -> BloomFilter:
        """Return the bloom filter in the footer of a base file.

        Args:
            text_base64: value of ``BLOOM_FILTER`` in the footer.
            type_code: value of ``TYPE_CODE`` in the footer.
            path: the file, for messages.

        Raises:
            CorruptData: the text is not a filter of this type.
            Unsupported: the filter has another type, or another hash function.
        """
        try:
            data = base64.b64decode(text_base64, validate=True)
        except (binascii.Error, ValueError) as error:
            raise CorruptData(path, None, "a bloom filter in Base64", str(error)) from error
        if type_code == SIMPLE:
            return cls._from_rows([data], path)
        if type_code == DYNAMIC_V0:
            return cls._from_rows(_split_rows(data, path), path)
        message = f"{path}: bloom filter of type {type_code!r}; supported: {SIMPLE}, {DYNAMIC_V0}"
        raise Unsupported(message)

    @classmethod
    def _from_rows(cls, rows: list[bytes], path: str) -> BloomFilter:
        hash_count, bits = _parse_header(rows[0], path)
        if any(_parse_header(row, path) != (hash_count, bits) for row in rows):
            raise CorruptData(path, None, "rows of one shape", "rows that differ")
        expected = _row_bytes(bits)
        wrong = next((len(row) for row in rows if len(row) != expected), None)
        if wrong is not None:
            raise CorruptData(path, None, f"{expected} bytes in a row", f"{wrong} bytes")
        packed = np.frombuffer(b"".join(row[_HEADER.size :] for row in rows), np.uint8)
        unpacked = np.unpackbits(packed.reshape(len(rows), -1), axis=1, bitorder="little")
        return cls(hash_count, unpacked[:, :bits].view(np.bool_))

    def might_contain(self, keys: pa.Array) -> npt.NDArray[np.bool_]:
        """Return for each key whether the file may contain it.

        Raises:
            InvalidRecords: a key is null or empty.
        """
        found = np.empty(len(keys), np.bool_)
        for rows, chunk in _checked(keys).chunks(_CHUNK_BYTES):
            found[rows] = self._might_contain(chunk)
        return found

    def _might_contain(self, keys: ByteStrings) -> npt.NDArray[np.bool_]:
        murmur = Murmur2(keys)
        count = len(keys.lengths)
        hashes, held = np.zeros(count, np.uint32), np.ones((len(self.rows), count), np.bool_)
        for _ in range(self.hash_count):
            hashes = murmur.hash(hashes)
            held &= self.rows[:, _bit_of(hashes, self.rows.shape[1]).astype(np.intp)]
            if not held.any():
                break
        in_order = np.empty(count, np.bool_)
        in_order[slice(None) if murmur.order is None else murmur.order] = held.any(axis=0)
        return in_order


def _checked(keys: pa.Array) -> ByteStrings:
    strings = byte_strings(keys)
    if keys.null_count or not strings.lengths.all():
        message = "a record key is null or empty; reject such records before they are written"
        raise InvalidRecords(message)
    return strings


def _bit_of(hashes: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    """Return Java's ``Math.abs(hash % bits)``, where the remainder has the sign of the hash."""
    size = np.abs(hashes.view(np.int32)).view(np.uint32)
    # numpy divides by a constant with vector instructions, but computes remainders one by one
    size -= size // np.uint32(bits) * np.uint32(bits)
    return size


def _split_rows(data: bytes, path: str) -> list[bytes]:
    _, bits = _parse_header(data, path)
    start = _HEADER.size + _ROWS.size
    if len(data) < start:
        raise CorruptData(path, len(data), f"{start} bytes of header", "the end")
    _, _, count = _ROWS.unpack_from(data, _HEADER.size)
    row_bytes = _row_bytes(bits)
    if count < 1 or len(data) != start + count * row_bytes:
        expected = f"{count} rows of {row_bytes} bytes"
        raise CorruptData(path, start, expected, f"{len(data) - start} bytes")
    return [data[at : at + row_bytes] for at in range(start, len(data), row_bytes)]


def _parse_header(data: bytes, path: str) -> tuple[int, int]:
    """Return the number of hashes per key, and the number of bits of a row."""
    if len(data) < _HEADER.size:
        raise CorruptData(path, len(data), f"{_HEADER.size} bytes of header", "the end")
    version, hashes, hash_type, bits = _HEADER.unpack_from(data)
    if version != _VERSION or not 0 < hashes <= _MAX_HASHES or bits <= 0:
        actual = f"version {version}, {hashes} hashes, {bits} bits"
        raise CorruptData(path, 0, f"version {_VERSION}, hashes and bits", actual)
    if hash_type != _MURMUR:
        message = f"{path}: bloom filter with hash {hash_type}; supported: {_MURMUR} (Murmur)"
        raise Unsupported(message)
    return hashes, bits


def _row_bytes(bits: int) -> int:
    return _HEADER.size + (bits + 7) // 8


def _key_range(keys: ByteStrings) -> tuple[bytes, bytes]:
    """Return the smallest and the largest key in Java's order."""
    data = keys.data
    if data.max() >= 0xF0:
        data = np.frombuffer(TO_UTF16_ORDER, np.uint8)[data]
    ordered = pc.min_max(ByteStrings(data, keys.offsets).to_arrow())
    low, high = ordered["min"].as_py(), ordered["max"].as_py()
    if data is not keys.data:
        back = bytes.maketrans(b"\xf8\xf9", b"\xee\xef")
        low, high = low.translate(back), high.translate(back)
    return low, high
