"""The type of settings that choose partitions by their paths."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BeforeValidator

from lakemark.errors import InvalidConfig
from lakemark.model.partition_pattern import PartitionPattern
from streamer.config.section import as_names


def _check_patterns(texts: tuple[str, ...]) -> tuple[str, ...]:
    try:
        for text in texts:
            PartitionPattern(text)
    except InvalidConfig as error:
        raise ValueError(str(error)) from None
    return texts


#: Patterns of partition paths (``PartitionPattern``); one text is one pattern.
Patterns: TypeAlias = Annotated[
    tuple[str, ...], BeforeValidator(as_names), AfterValidator(_check_patterns)
]
