"""The bounds of texts in another case cover what Java may make of their letters."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.metadata.expressions import text_functions as functions

#: Letters that Python converts as Java does, and the greatest code points.
TEXTS = st.text("aBiZ é\uffff\U0010ffff", max_size=20)


@given(st.lists(st.none() | TEXTS, min_size=1))
@pytest.mark.parametrize("name", ["upper", "lower"])
def test_bounds_cover_each_text_in_another_case(name: str, texts: list[str | None]) -> None:
    bounds = getattr(functions, name)(pa.array(texts, pa.string()))
    for text, low, high in zip(
        texts, bounds.lows.to_pylist(), bounds.highs.to_pylist(), strict=True
    ):
        if text is None:
            assert low is high is None
        else:
            assert low.encode() <= getattr(text, name)().encode() <= high.encode()
