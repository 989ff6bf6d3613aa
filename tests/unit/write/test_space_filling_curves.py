"""Curves visit every point of the grid once; neighbours on a Hilbert curve touch each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest

from lakemark.write.space_filling_curves import (
    Coordinates,
    bits_per_dimension,
    hilbert_positions,
    z_order_positions,
)

GRIDS = [(1, 4), (2, 1), (2, 4), (3, 3), (4, 2), (5, 2)]


def grid(dimensions: int, bits: int) -> list[Coordinates]:
    points = np.array(list(product(range(1 << bits), repeat=dimensions)), np.uint64)
    return [points[:, number].copy() for number in range(dimensions)]


@pytest.mark.parametrize("positions", [z_order_positions, hilbert_positions])
@pytest.mark.parametrize(("dimensions", "bits"), GRIDS)
def test_each_point_has_a_position_of_its_own(
    positions: Callable[[Sequence[Coordinates], int], Coordinates], dimensions: int, bits: int
) -> None:
    points = grid(dimensions, bits)
    found = positions(points, bits)
    assert sorted(found.tolist()) == list(range(1 << (dimensions * bits)))
    assert [part.tolist() for part in points] == [part.tolist() for part in grid(dimensions, bits)]


@pytest.mark.parametrize(("dimensions", "bits"), GRIDS)
def test_adjacent_positions_of_the_hilbert_curve_differ_by_one_step(
    dimensions: int, bits: int
) -> None:
    points = grid(dimensions, bits)
    order = np.argsort(hilbert_positions(points, bits))
    steps = [np.abs(np.diff(part[order].astype(np.int64))) for part in points]
    assert {*np.sum(steps, axis=0).tolist()} == {1}


def test_the_z_order_curve_interleaves_the_bits() -> None:
    x, y = (np.array([value], np.uint64) for value in (0b101, 0b011))
    assert z_order_positions([x, y], 3).tolist() == [0b100111]


@pytest.mark.parametrize("dimensions", [1, 2, 5, 16])
def test_positions_fit_into_64_bits(dimensions: int) -> None:
    bits = bits_per_dimension(dimensions)
    largest = np.array([(1 << bits) - 1], np.uint64)
    found = int(z_order_positions([largest] * dimensions, bits)[0])
    assert found == (1 << (bits * dimensions)) - 1
    assert bits >= 4
