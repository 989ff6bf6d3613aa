"""HFiles, version 3: sorted keys with values, in blocks behind an index."""

from table.codec.hfile.data_block import Entries
from table.codec.hfile.hfile_writer import write_hfile
from table.codec.hfile.reader import HFileReader

__all__ = ["Entries", "HFileReader", "write_hfile"]
