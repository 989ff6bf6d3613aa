"""Measures what it costs a pipeline to log change data for CDC queries.

The same topic of JSON records is read into copy-on-write tables that log nothing, the keys of
changed rows, also their old values, or their old and new values (``table.cdc``). A merge-on-read
table logs nothing more. The pipelines run in turn (``benchmarks.pipelines``).

``python -m benchmarks.change_data [--only NAME,…] [--records N] [--batch N] [--skip N]
[--repeats N]``
"""

from __future__ import annotations

import argparse

from benchmarks.pipelines import COLUMNS, add_options, comparison, report
from streamer.demo import produce
from streamer.demo.order_stream import OrderMix

_TOPIC = "orders"
_PARTITIONS = 2
_MIX = OrderMix(broken=0.0)

#: The values of ``table.cdc``. All others are compared with the first one.
MODES = ("none", "op_key_only", "data_before", "data_before_after")


def main() -> None:
    """Run the pipelines, and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser, dict.fromkeys(MODES))
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
        pipelines = {
            mode: {
                "source": {"topic": _TOPIC},
                "decode": {"schema": COLUMNS},
                "table": {"type": "copy_on_write", "cdc": mode},
            }
            for mode in arguments.only
        }
        runs = compared.run(pipelines, arguments.records)
    report(runs, arguments.json)


if __name__ == "__main__":
    main()
