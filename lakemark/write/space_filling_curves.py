"""Positions of points on space-filling curves, for many points at once.

A curve visits every point of a grid once. Rows that are near each other on the curve are near each
other in every dimension, so that a file with a piece of the curve has a narrow range of values in
each column. The grid has ``2^bits`` coordinates in each dimension.

Source: G. M. Morton, "A Computer Oriented Geodetic Data Base" (1966), for the Z-order curve;
J. Skilling, "Programming the Hilbert Curve" (2004), for the Hilbert curve.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

#: The number of bits of a position.
_POSITION_BITS = 64

#: The largest number of bits of a coordinate.
_MAX_BITS = 16

Coordinates = npt.NDArray[np.uint64]


def bits_per_dimension(dimensions: int) -> int:
    """Return the number of bits that each coordinate may have."""
    return min(_MAX_BITS, _POSITION_BITS // dimensions)


def z_order_positions(dimensions: Sequence[Coordinates], bits: int) -> Coordinates:
    """Return the position of each point on the Z-order curve: the interleaved bits.

    Args:
        dimensions: the coordinates of all points in each dimension, below ``2^bits``.
        bits: at most ``bits_per_dimension``.
    """
    positions = np.zeros(len(dimensions[0]), np.uint64)
    for bit in reversed(range(bits)):
        for coordinates in dimensions:
            positions <<= np.uint64(1)
            positions |= (coordinates >> np.uint64(bit)) & np.uint64(1)
    return positions


def hilbert_positions(dimensions: Sequence[Coordinates], bits: int) -> Coordinates:
    """Return the position of each point on the Hilbert curve.

    Points whose positions are adjacent differ by 1 in exactly one dimension.

    Args:
        dimensions: as for ``z_order_positions``.
        bits: as for ``z_order_positions``.
    """
    points = [coordinates.copy() for coordinates in dimensions]
    for bit in reversed(range(1, bits)):
        _undo_turn(points, np.uint64(1 << bit))
    _gray_encode(points, bits)
    return z_order_positions(points, bits)


def _undo_turn(points: list[Coordinates], bit: np.uint64) -> None:
    """Undo how the curve is turned and reflected in the cell of each point that ``bit`` selects."""
    below = bit - np.uint64(1)
    for number, coordinates in enumerate(points):
        is_set = (coordinates & bit) != 0
        swapped = (points[0] ^ coordinates) & below
        coordinates ^= np.where(is_set, np.uint64(0), swapped)
        points[0] ^= np.where(is_set, below, swapped if number else np.uint64(0))


def _gray_encode(points: list[Coordinates], bits: int) -> None:
    for before, coordinates in pairwise(points):
        coordinates ^= before
    reflected = np.zeros(len(points[0]), np.uint64)
    for bit in reversed(range(1, bits)):
        is_set = (points[-1] & np.uint64(1 << bit)) != 0
        reflected ^= np.where(is_set, np.uint64((1 << bit) - 1), np.uint64(0))
    for coordinates in points:
        coordinates ^= reflected
