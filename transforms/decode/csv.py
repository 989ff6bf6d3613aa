"""Decodes Kafka values that are lines of CSV: one line for each value, without a header.

pyarrow parses the values in blocks, as texts, with a last line that shows whether each quotation
mark was closed. A value with quotation marks or line breaks must match the grammar of one line
before, because pyarrow accepts text after a closing quotation mark, and takes a line break for the
end of the value. If the number of lines differs from that of the values nevertheless, the block is
divided until the values at fault are found. The texts become values as
``transforms.decode.value_encoding`` describes.

A byte order mark at the begin of a value is removed, because pyarrow would only remove that of the
first value of a block.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from lakemark.errors import InvalidConfig
from lakemark.schema.evolution import NOTHING_PROPOSED, Path, Proposal
from transforms.decode.decode_result import DecodeResult, Indices
from transforms.decode.decoder import ColumnDecoder
from transforms.decode.json_screening import find_utf8
from transforms.decode.value_encoding import ValueEncoding
from transforms.reject_reason import RejectCode, RejectReason

Mask = npt.NDArray[np.bool_]

#: How many values are parsed at once. A block that has a wrong value is divided, so it is small.
_BLOCK_VALUES = 4096
_TEXTS = ValueEncoding(texts=True)
#: The end of a line, and a byte order mark in front of it.
_AROUND_LINE = r"\A\xef\xbb\xbf|(\r\n|\n|\r)\z"
_NEEDS_GRAMMAR = r'["\r\n]'
_NOT_ONE_LINE = (
    "the value is not one line: a quotation mark is not closed, text follows a closing quotation "
    "mark, or a line ends early"
)


@dataclass(frozen=True, slots=True)
class CsvDecoder(ColumnDecoder):
    """Decodes columns of lines.

    Attributes:
        fields: the columns that the fields of a line fill, in the order of the line. All other
            columns are null.
        delimiter: the character between two fields.
        null_text: the text of a field that is null, unless it is in quotation marks.
    """

    fields: tuple[str, ...] = field(kw_only=True)
    delimiter: str = field(default=",", kw_only=True)
    null_text: str = field(default="", kw_only=True)

    def check_type(self, path: str, data_type: pa.DataType) -> None:
        """Check that a text can be parsed to a column type."""
        if path in self.fields and (pa.types.is_nested(data_type) or pa.types.is_binary(data_type)):
            message = f"column {path!r}: CSV is not decoded to {data_type}"
            raise InvalidConfig(message)

    def decode(self, values: pa.Array | pa.ChunkedArray) -> DecodeResult:
        """See ``ColumnDecoder``."""
        chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        decoding = _CsvDecoding(self)
        start = 0
        for chunk in chunks:
            decoding.add(chunk.cast(pa.binary()), start)
            start += len(chunk)
        return decoding.finish()

    def propose_columns(self, values: pa.Array | pa.ChunkedArray) -> Proposal:
        """Return no changes, because a line does not name its fields."""
        return NOTHING_PROPOSED

    def find_wider_paths(self, values: pa.Array | pa.ChunkedArray) -> set[Path]:
        """Return no paths. A number that does not fit its column rejects its line."""
        return set()


class _CsvDecoding:
    """The state of one call of ``decode``."""

    def __init__(self, decoder: CsvDecoder) -> None:
        self._decoder = decoder
        #: A text that is one field, and not null.
        self._mark = next(one for one in "xyz" if one not in (decoder.delimiter, decoder.null_text))
        self._line = _line_pattern(decoder.delimiter)
        self._last_line = decoder.delimiter.join(self._mark for _ in decoder.fields).encode()
        self._tables = [decoder.rows_schema.empty_table()]
        self._indices: list[Indices] = []
        self._reasons: dict[int, RejectReason] = {}

    def add(self, values: pa.Array, start: int) -> None:
        """Decode values, the first of which has the index ``start`` in the input."""
        values = pc.replace_substring_regex(values, _AROUND_LINE, "")
        lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
        is_text = find_utf8(values)
        for index in np.flatnonzero(~is_text | (lengths == 0)).tolist():
            text = "not UTF-8"
            if not lengths[index]:
                text = "empty" if values[index].is_valid else "null"
            self._reject(start + index, f"the value is {text}")
        chosen = np.flatnonzero(is_text & (lengths > 0))
        values = values.take(pa.array(chosen))
        is_line = self._find_lines(values)
        for index in chosen[~is_line].tolist():
            self._reject(start + index, _NOT_ONE_LINE)
        values, indices = values.filter(pa.array(is_line)), start + chosen[is_line]
        for begin in range(0, len(values), _BLOCK_VALUES):
            block = slice(begin, begin + _BLOCK_VALUES)
            self._parse(values[block], indices[block])

    def _find_lines(self, values: pa.Array) -> Mask:
        """Return which values are one line by the grammar of CSV (RFC 4180)."""
        is_line = np.ones(len(values), np.bool_)
        needs_grammar = pc.match_substring_regex(values, _NEEDS_GRAMMAR)
        unclear = np.flatnonzero(needs_grammar.to_numpy(zero_copy_only=False))
        if len(unclear):
            matches = pc.match_substring_regex(values.take(pa.array(unclear)), self._line)
            is_line[unclear] = matches.to_numpy(zero_copy_only=False)
        return is_line

    def finish(self) -> DecodeResult:
        """Return the rows and the rejects of all added values, in the order of the input."""
        no_indices = np.empty(0, np.int64)
        return DecodeResult.concat(self._tables, self._indices, self._reasons, no_indices, {})

    def _parse(self, values: pa.Array, indices: Indices) -> None:
        """Parse lines. If they are not one for each value, parse them in smaller parts."""
        invalid: dict[int, RejectReason] = {}

        def skip(row: pacsv.InvalidRow) -> str:
            text = f"the line has {row.actual_columns} fields instead of {row.expected_columns}"
            invalid[row.number - 1] = RejectReason(RejectCode.INVALID_MESSAGE, text)
            return "skip"

        texts = self._read(values, skip)
        if texts is not None and self._has_one_line_each(texts, invalid, len(values)):
            is_valid = np.ones(len(values), np.bool_)
            is_valid[list(invalid)] = False
            self._reasons |= {int(indices[one]): reason for one, reason in invalid.items()}
            self._keep(texts.slice(0, texts.num_rows - 1), indices[is_valid])
        elif len(values) == 1:
            self._reject(int(indices[0]), _NOT_ONE_LINE)
        else:
            middle = len(values) // 2
            self._parse(values[:middle], indices[:middle])
            self._parse(values[middle:], indices[middle:])

    def _has_one_line_each(
        self, texts: pa.Table, invalid: Mapping[int, RejectReason], count: int
    ) -> bool:
        """Return whether there is a line for each value, and the last line after them."""
        if texts.num_rows + len(invalid) != count + 1 or max(invalid, default=0) >= count:
            return False
        last = texts.slice(texts.num_rows - 1)
        return all(column[0].as_py() == self._mark for column in last.columns)

    def _read(self, values: pa.Array, skip: object) -> pa.Table | None:
        """Return the lines and the last line as texts; None if they cannot be parsed."""
        names, delimiter = self._decoder.fields, self._decoder.delimiter
        lines = pa.concat_arrays([values, pa.array([self._last_line], pa.binary())])
        lists = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
        data = pc.binary_join(lists, b"\n")[0].as_buffer()
        try:
            return pacsv.read_csv(
                pa.BufferReader(data),
                read_options=pacsv.ReadOptions(
                    use_threads=False, column_names=names, block_size=len(data) + 1
                ),
                parse_options=pacsv.ParseOptions(
                    delimiter=delimiter,
                    newlines_in_values=True,
                    ignore_empty_lines=False,
                    invalid_row_handler=skip,
                ),
                convert_options=pacsv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[self._decoder.null_text],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid:
            return None

    def _keep(self, texts: pa.Table, indices: Indices) -> None:
        """Parse the texts of lines, and keep the rows whose values fit their columns."""
        decoder = self._decoder
        known = [one for one in decoder.rows_schema if one.name in decoder.fields]
        rows, reasons = _TEXTS.convert(
            texts.select([one.name for one in known]), pa.schema(known), decoder.epoch_unit
        )
        is_valid = np.ones(len(indices), np.bool_)
        is_valid[list(reasons)] = False
        self._reasons |= {int(indices[row]): reason for row, reason in reasons.items()}
        columns = [
            rows.column(one.name) if one.name in decoder.fields else pa.nulls(len(rows), one.type)
            for one in decoder.rows_schema
        ]
        kept = pa.table(columns, schema=decoder.rows_schema)
        self._tables.append(kept.filter(pa.array(is_valid)))
        self._indices.append(indices[is_valid])

    def _reject(self, index: int, text: str) -> None:
        self._reasons[index] = RejectReason(RejectCode.INVALID_MESSAGE, text)


def _line_pattern(delimiter: str) -> str:
    """Return the pattern of a line: fields, in quotation marks or without one at their begin."""
    end = re.escape(delimiter)
    field = rf'(?:"(?:[^"]|"")*"|(?:[^"\r\n{end}][^\r\n{end}]*)?)'
    return rf"\A{field}(?:{end}{field})*\z"
