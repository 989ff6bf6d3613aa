"""The memory that a batch may take in the driver."""

from __future__ import annotations

#: The maximum Arrow size of a collected batch; the heap of the JVM may set a lower limit.
COLLECT_BUDGET_BYTES = 768 << 20

#: How many copies of a batch Python must hold outside the heap: two batches and their decoded rows.
COPIES_OUTSIDE_HEAP = 4

#: This size is always collected, even if memory is short.
_MIN_BUDGET_BYTES = 32 << 20

#: How many copies of a batch Spark's heap must hold while it is collected (measured: 3 to 4).
_COPIES_ON_HEAP = 6


def driver_budget_bytes(
    heap_bytes: int, machine_bytes: int, copies_outside_heap: int = COPIES_OUTSIDE_HEAP
) -> int:
    """Return the maximum size of a batch that is collected in the driver.

    Args:
        heap_bytes: the size of the driver's heap.
        machine_bytes: the memory of the machine or of the container, which includes the heap.
        copies_outside_heap: how many copies of a batch Python must hold outside the heap.
    """
    outside_bytes = max(0, machine_bytes - heap_bytes)
    budgets = (heap_bytes // _COPIES_ON_HEAP, outside_bytes // copies_outside_heap)
    return min(COLLECT_BUDGET_BYTES, max(_MIN_BUDGET_BYTES, min(budgets)))
