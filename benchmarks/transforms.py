"""Measures what the steps of ``transform`` cost a pipeline that reads Kafka.

The same topic of JSON records is read by pipelines without steps, with one step each, and with all
steps: ``select`` of all columns, ``cast`` of two columns, ``filter``, which drops fewer than one
record in a hundred, and a projection in SQL. The pipelines run in turn (``benchmarks.pipelines``).

``python -m benchmarks.transforms [--only NAME,…] [--records N] [--batch N] [--skip N]
[--repeats N]``
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from benchmarks.pipelines import COLUMNS, add_options, comparison, report
from streamer.demo import produce
from streamer.demo.order_stream import OrderMix

_TOPIC = "orders"
_PARTITIONS = 2
_MIX = OrderMix(broken=0.0, deleted=0.0)

_SELECT = {"step": "select", "columns": [*COLUMNS]}
_CAST = {"step": "cast", "columns": {"quantity": "bigint", "amount": "decimal(12,2)"}}
_FILTER = {"step": "filter", "where": "amount > 10.00"}
_SQL = {
    "step": "sql",
    "query": "select * exclude (status), upper(status) as status from records",
}

#: The steps of each pipeline. All others are compared with the first one.
PIPELINES: Mapping[str, list[Mapping[str, Any]]] = {
    "no steps": [],
    "select": [_SELECT],
    "cast": [_CAST],
    "filter": [_FILTER],
    "sql": [_SQL],
    "all steps": [_SELECT, _CAST, _FILTER, _SQL],
}


def main() -> None:
    """Run the pipelines, and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser, PIPELINES)
    arguments = parser.parse_args()
    with comparison(arguments) as compared:
        produce(
            compared.broker.bootstrap,
            _TOPIC,
            arguments.records,
            keys=max(1, arguments.records // 5),
            mix=_MIX,
            partitions=_PARTITIONS,
        )
        pipelines = {name: _pipeline(PIPELINES[name]) for name in arguments.only}
        runs = compared.run(pipelines, arguments.records)
    report(runs, arguments.json)


def _pipeline(steps: list[Mapping[str, Any]]) -> dict[str, Any]:
    pipeline: dict[str, Any] = {"source": {"topic": _TOPIC}, "decode": {"schema": COLUMNS}}
    return pipeline | ({"transform": [*steps]} if steps else {})


if __name__ == "__main__":
    main()
