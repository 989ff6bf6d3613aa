"""The workload of the benchmark is what its page says it is."""

from __future__ import annotations

import pyarrow.compute as pc

from benchmarks import workload
from streamer.demo.order_messages import order_messages


def test_a_record_has_about_230_bytes() -> None:
    (batch,) = order_messages(1000, keys=workload._KEYS, mix=workload._MIX)
    assert 215 < pc.mean(pc.binary_length(batch["value"])).as_py() < 245


def test_no_two_states_of_an_order_have_one_ordering_value() -> None:
    (batch,) = order_messages(50_000, keys=1_000, mix=workload._MIX)
    values = pc.extract_regex(batch["value"].cast("string"), r'"updated_at":(?P<at>\d+)')
    assert pc.count_distinct(pc.struct_field(values, 0)).as_py() == 50_000
