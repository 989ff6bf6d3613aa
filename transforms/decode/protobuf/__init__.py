"""Decodes Protocol Buffers: their schemas, their wire format, and the columns of messages."""
