"""Which order each event changes: any one, a new one, or a few orders much more often."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from streamer.demo.order_stream import EventBlock, Ints


class KeyChoice(Enum):
    """How the changes are distributed over the orders."""

    #: Each order equally often.
    UNIFORM = auto()
    #: Each event is about an order of its own.
    NEW = auto()
    #: Zipf's law: the n-th order 1/n times as often as the first one.
    ZIPF = auto()

    def apply(self, events: EventBlock, keys: int) -> EventBlock:
        """Choose the orders of events that were drawn uniformly from this number of keys."""
        match self:
            case KeyChoice.UNIFORM:
                return events
            case KeyChoice.NEW:
                return replace(events, order=events.number)
            case KeyChoice.ZIPF:
                return replace(events, order=_zipf(events.order, keys))

    def count_orders(self, keys: int, events: int) -> int:
        """Return a number that all order numbers of so many events are below."""
        return events if self is KeyChoice.NEW else keys


def _zipf(uniform: Ints, keys: int) -> Ints:
    """Convert uniform numbers below ``keys`` to ranks, at the same quantile of the distribution."""
    return np.searchsorted(_cumulated_shares(keys), (uniform + 0.5) / keys).astype(np.int64)


@lru_cache(maxsize=2)
def _cumulated_shares(keys: int) -> npt.NDArray[np.float64]:
    shares = np.cumsum(1.0 / np.arange(1, keys + 1))
    cumulated: npt.NDArray[np.float64] = shares / shares[-1]
    return cumulated
