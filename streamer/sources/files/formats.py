"""Chooses the format of files; without Spark, also for ``lakemark doctor``."""

from __future__ import annotations

from streamer.config.decode import DecodeConfig
from streamer.config.files_source import FilesSourceConfig
from streamer.config.plain_values import CsvDecodeConfig
from streamer.sources.files.column_files import AvroFormat, ParquetFormat
from streamer.sources.files.file_format import PIECE_BYTES, FileFormat
from streamer.sources.files.lines import LinesFormat


def file_format(config: FilesSourceConfig, decode: DecodeConfig) -> FileFormat:
    """Return the format of the files of a source."""
    if config.format == "parquet":
        return ParquetFormat()
    if config.format == "avro":
        return AvroFormat()
    piece_bytes = min(PIECE_BYTES, config.max_bytes_per_batch)
    if isinstance(decode, CsvDecodeConfig):
        names = tuple(decode.columns) if config.header else None
        return LinesFormat(True, decode.delimiter, names, piece_bytes)
    return LinesFormat(piece_bytes=piece_bytes)
