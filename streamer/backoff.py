"""The pause before a retry."""

from __future__ import annotations

#: More doublings would exceed any sensible limit, and eventually the range of a float.
_MAX_DOUBLINGS = 30


def pause_after(failures: int, first_s: float, longest_s: float) -> float:
    """Return the seconds to wait after a number of consecutive failures.

    Args:
        failures: the number of failures, at least 1.
        first_s: the pause after the first failure; it doubles after each further failure.
        longest_s: the longest pause.
    """
    return min(first_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS), longest_s)
