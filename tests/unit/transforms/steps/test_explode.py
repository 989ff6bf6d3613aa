"""A record whose rows would not fit in memory is rejected, and the others are not."""

from __future__ import annotations

import pyarrow as pa
import pytest

from transforms.steps.explode import Explode


@pytest.mark.parametrize("keeps_empty", [True, False])
def test_a_long_array_next_to_a_long_text_rejects_its_record_alone(keeps_empty: bool) -> None:
    long = "x" * 1_200_000
    rows = pa.table(
        {
            "id": ["a", "b", "c", "d", "e"],
            "text": ["short", long, None, long, "short"],
            "tags": pa.array([["p", "q"], ["r"] * 1_000, ["s"], ["t", "u"], []]),
        }
    )
    found = Explode("tags", "at", keeps_empty=keeps_empty).apply(rows)
    assert list(found.rejected) == [1]
    assert "1,000 elements" in found.rejected[1]
    assert "1.2 GB" in found.rejected[1]
    assert found.origins is not None
    assert found.origins.tolist() == [0, 0, 2, 3, 3, *([4] if keeps_empty else [])]
    assert found.filtered.tolist() == ([] if keeps_empty else [4])
    assert found.rows["tags"].to_pylist()[:5] == ["p", "q", "s", "t", "u"]
    assert found.rows["id"].to_pylist()[:5] == ["a", "a", "c", "d", "d"]


def test_many_records_that_are_large_together_are_kept() -> None:
    text = "x" * 100_000
    rows = pa.table({"text": [text] * 150, "tags": pa.array([["a"]] * 149 + [["a"] * 100])})
    found = Explode("tags").apply(rows)
    assert not found.rejected
    assert found.rows.num_rows == 249
