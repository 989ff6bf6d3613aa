"""Measures what the envelopes of Debezium cost a pipeline that reads JSON from Kafka.

The same rows are in four topics: as plain JSON, as change events without and with the row before
the change, and as change events with their schema (``benchmarks.workloads.change_events``). The
pipelines run in turn (``benchmarks.pipelines``), and their tables have the same columns except
``_position``, which only events have.

``python -m benchmarks.debezium [--only NAME,…] [--records N] [--batch N] [--skip N] [--repeats N]``
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.pipelines import COLUMNS, add_options, comparison, report
from benchmarks.workloads.change_events import Form, messages
from benchmarks.workloads.sending import send_messages

_CHANGES_PER_KEY = 5
_FORMS = {form.value: form for form in Form}


def main() -> None:
    """Run the pipelines, and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser, _FORMS)
    arguments = parser.parse_args()
    keys = max(1, arguments.records // _CHANGES_PER_KEY)
    forms = {name: _FORMS[name] for name in arguments.only}
    with comparison(arguments) as compared:
        for form in forms.values():
            sent = messages(form, arguments.records, keys)
            send_messages(compared.broker.bootstrap, _topic(form), sent)
        pipelines = {name: pipeline_of(form) for name, form in forms.items()}
        runs = compared.run(pipelines, arguments.records)
    report(runs, arguments.json)


def pipeline_of(form: Form) -> dict[str, Any]:
    """Return the sections of the pipeline that reads a topic of messages of a form."""
    events = {"format": "debezium", "database": "postgres", "event_fields": []}
    decode = {"schema": COLUMNS, **({} if form is Form.ROW else events)}
    return {"source": {"topic": _topic(form)}, "decode": decode}


def _topic(form: Form) -> str:
    return form.name.lower()


if __name__ == "__main__":
    main()
