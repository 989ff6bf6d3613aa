"""How long to wait before what has failed is tried again."""

from __future__ import annotations

#: Doubled more often, a pause would outgrow any limit, and at last what a float holds.
_MOST_DOUBLINGS = 30


def pause_after(failures: int, first_s: float, longest_s: float) -> float:
    """Seconds to wait after so many failures in a row.

    Args:
        failures: at least one.
        first_s: after the first; doubled after each further one.
        longest_s: the longest pause.
    """
    return min(first_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), longest_s)
