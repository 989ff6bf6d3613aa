"""The order in which a clustering writes rows, as a plan of Apache Hudi names it.

Source: ``HoodieClusteringConfig`` of Apache Hudi 1.2.0. A plan of Apache Hudi contains the columns.
The curve is a setting of the writer that executes the plan, so lakemark stores it in its own plans,
where Apache Hudi ignores it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

_COLUMNS = "hoodie.clustering.plan.strategy.sort.columns"
_CURVE = "hoodie.layout.optimize.strategy"


class Curve(StrEnum):
    """How rows are ordered by several columns.

    Attributes:
        LINEAR: by the first column; rows with the same value by the second one, and so on.
        Z_ORDER: along a Z-order curve, so that each file has a narrow range of every column.
        HILBERT: along a Hilbert curve, whose ranges are narrower, and which takes longer.
    """

    LINEAR = "linear"
    Z_ORDER = "z-order"
    HILBERT = "hilbert"


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The order of the rows of new files.

    Attributes:
        columns: the columns by which rows are sorted; without columns, rows keep their order.
        curve: how several columns are combined.
    """

    columns: tuple[str, ...] = ()
    curve: Curve = Curve.LINEAR

    def to_params(self) -> dict[str, str]:
        """Return the parameters of a plan's strategy."""
        if not self.columns:
            return {}
        return {_COLUMNS: ",".join(self.columns), _CURVE: str(self.curve)}

    @classmethod
    def from_params(cls, params: Mapping[str, str]) -> RowOrder:
        """Read the parameters of a plan's strategy. Without a curve, the order is linear.

        Raises:
            ValueError: there is no such curve.
        """
        names = (name.strip() for name in params.get(_COLUMNS, "").split(","))
        curve = params.get(_CURVE, Curve.LINEAR).lower()
        columns = tuple(dict.fromkeys(name for name in names if name))
        return cls(columns, Curve.Z_ORDER if curve == "zorder" else Curve(curve))
