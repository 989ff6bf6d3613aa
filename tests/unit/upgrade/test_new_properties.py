"""A table merges in every version as it did before."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from table.config.merge_settings import PAYLOAD_CLASSES, merge_settings
from table.config.table_properties import MergeMode
from table.config.table_spec import TableSpec
from table.model.format_version import FormatVersion
from table.upgrade.new_properties import changed_properties, properties_of
from tests.unit.config.test_table_spec import ORDERED, OWN

#: Of MySQL's payload there are two ordering columns, which only version 9 has.
PAYLOADS = [name for name in PAYLOAD_CLASSES if "MySql" not in name]
SPECS = [
    ORDERED,
    replace(ORDERED, merge_mode=MergeMode.COMMIT_TIME),
    replace(ORDERED, merger=OWN, merge_mode=MergeMode.CUSTOM),
    *(replace(ORDERED, payload=name, ordering=("ts",)) for name in PAYLOADS[:-2]),
]


@pytest.mark.parametrize(("before", "after"), list(product(FormatVersion, FormatVersion)))
def test_the_words_change_and_not_what_they_say(
    before: FormatVersion, after: FormatVersion
) -> None:
    for spec in SPECS:
        _check(replace(spec, version=before), after)


def _check(spec: TableSpec, after: FormatVersion) -> None:
    properties = spec.to_properties()
    changed = properties_of(properties, after)
    said = [replace(merge_settings(one), payload=None) for one in (properties, changed)]
    assert said[0] == said[1]
    assert changed.version == after
    replace(spec, version=after).check(changed, "/lake/trips")
    names = {name for name, *_ in changed_properties(properties, changed)}
    assert ("hoodie.table.version" in names) == (spec.version is not after)
