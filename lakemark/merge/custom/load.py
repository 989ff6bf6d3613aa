"""Loads custom mergers by class path, and selects one by strategy id."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from lakemark.config.merge_settings import MODE_STRATEGIES, PAYLOAD_STRATEGY
from lakemark.errors import InvalidConfig, Unsupported
from lakemark.merge.custom.api import (
    BufferedRecordMerger,
    CustomMerger,
    VectorMerger,
)
from lakemark.merge.custom.class_path import import_object

_KINDS = f"{VectorMerger.__name__} or {BufferedRecordMerger.__name__}"


def load_merger(class_path: str) -> CustomMerger:
    """Load the merger at ``package.module:Class`` or ``FILE.py:Class``.

    Instead of a class, the path may name an instance.

    Raises:
        InvalidConfig: this process cannot import the path, the object at the path is not a merger,
            or ``check_strategy`` refuses its strategy id.
    """
    found = import_object(class_path)
    if isinstance(found, type) and issubclass(found, CustomMerger):
        found = _create(class_path, found)
    if not isinstance(found, VectorMerger | BufferedRecordMerger):
        message = (
            f"merger {class_path} is {_describe(found)}; inherit from {_KINDS} of "
            "lakemark.merge.custom"
        )
        raise InvalidConfig(message)
    check_strategy(found)
    return found


def check_strategy(merger: CustomMerger) -> None:
    """Check that a merger has a valid strategy id, which is a UUID and not one of Hudi's.

    Raises:
        InvalidConfig: the merger has no strategy id, or the id is not a UUID, or it is the id of
            one of Hudi's own mergers.
    """
    strategy = getattr(merger, "merging_strategy", None)
    try:
        is_uuid = isinstance(strategy, str) and str(UUID(strategy)) == strategy.lower()
    except ValueError:
        is_uuid = False
    if not is_uuid:
        message = (
            f"merger {merger.name}: merging_strategy is {strategy!r}, not a UUID; "
            "generate one with uuid.uuid4() and keep it"
        )
        raise InvalidConfig(message)
    if strategy in (*MODE_STRATEGIES, PAYLOAD_STRATEGY):
        message = (
            f"merger {merger.name}: merging_strategy {strategy} belongs to Hudi's own mergers; "
            "generate one with uuid.uuid4() and keep it"
        )
        raise InvalidConfig(message)


def find_merger(strategy_id: str | None, mergers: Sequence[CustomMerger]) -> CustomMerger:
    """Return the first merger with a table's strategy id.

    Args:
        strategy_id: the table's strategy id. None for a table that does not exist yet; then the
            first merger is returned.
        mergers: mergers in order of preference.

    Raises:
        InvalidConfig: a merger has no valid strategy id.
        Unsupported: no merger has this strategy id.
    """
    for merger in mergers:
        check_strategy(merger)
        if strategy_id is None or merger.merging_strategy.lower() == strategy_id.lower():
            return merger
    given = ", ".join(f"{m.name} ({m.merging_strategy})" for m in mergers) or "no mergers"
    message = (
        f"the table is merged by the custom merger with strategy {strategy_id}, but the query has "
        f"{given}; pass the merger with this merging_strategy (lakemark.open(…, mergers=[…]), "
        "lakemark query --merger, table.merger of a pipeline)"
    )
    raise Unsupported(message)


def _create(class_path: str, kind: type[CustomMerger]) -> object:
    try:
        return kind()
    except TypeError as error:
        message = (
            f"merger {class_path} cannot be created without arguments ({error}); give every "
            "argument a default, define the abstract method merge, or name an object of the class"
        )
        raise InvalidConfig(message) from error


def _describe(found: object) -> str:
    if isinstance(found, type):
        return f"a class without that interface ({found.__name__})"
    return f"an object of {type(found).__name__}"
