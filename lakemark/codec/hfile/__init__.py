"""Reads and writes HFiles of version 3: sorted keys with values, in blocks with an index."""

from lakemark.codec.hfile.hfile_data_block import Entries
from lakemark.codec.hfile.hfile_writer import write_hfile
from lakemark.codec.hfile.reader import HFileReader

__all__ = ["Entries", "HFileReader", "write_hfile"]
