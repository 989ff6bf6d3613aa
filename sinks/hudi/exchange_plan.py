"""Plans the exchange of a batch: in the driver or on the cluster, and with how many reduce tasks.

The plan is the exchange with the shorter estimated time:

driver    collect(bytes) + work / cores of the driver
cluster   start of two stages + (work + shuffle(bytes)) / cores of the cluster

``work`` is the CPU time of decoding and writing: so much for each byte, each record and each file.
If the records do not fit in the driver, or may not (``AdaptiveExchange``), the plan is the cluster.
If the tasks of Spark run in the driver's own process, the driver is always faster, because both
exchanges use the same cores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# docs/performance.md shows where these figures come from. They need not be precise: if both
# exchanges take about the same time, either choice is right.
_WORK_S_OF_A_BYTE = 10e-9
_WORK_S_OF_A_RECORD = 1e-6
#: A file of a few rows: its marker, the file and its statistics.
_WORK_S_OF_A_FILE = 3e-3
#: One thread of the driver receives the results of all tasks.
_COLLECT_S_OF_A_BYTE = 5e-9
_SHUFFLE_S_OF_A_BYTE = 5e-9
#: Two stages with processes of Python.
_CLUSTER_START_S = 1.0

#: A reduce task should have this CPU time of work, so that the start of the task is small.
_WORK_S_OF_A_TASK = 0.5

#: More tasks than cores, so that all cores are busy to the end, even if tasks differ.
_TASKS_OF_A_CORE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSize:
    """The expected size of a batch.

    Attributes:
        records: the number of records.
        record_bytes: the size of a record, its key and value together.
        buckets: the number of buckets that the last batch changed; 0 if it is not known.
        grows: whether the batch has more records than the last one, so that it may change more
            buckets. For example, the backlog after an outage is much larger than other batches.
    """

    records: int
    record_bytes: int
    buckets: int
    grows: bool = False

    @property
    def bytes(self) -> int:
        """The size of all records."""
        return self.records * self.record_bytes

    @property
    def work_s(self) -> float:
        """The CPU time of decoding the records and writing the files."""
        return (
            self.bytes * _WORK_S_OF_A_BYTE
            + self.records * _WORK_S_OF_A_RECORD
            + min(self.buckets, self.records) * _WORK_S_OF_A_FILE
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cores:
    """The cores that an exchange can use.

    Attributes:
        driver: of the driver, within the limits of its container.
        cluster: of all executors; 0 if tasks run in the driver's own process.
    """

    driver: float
    cluster: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangePlan:
    """The planned exchange.

    Attributes:
        on_driver: whether the driver collects and writes the batch.
        reduce_tasks: the number of tasks that write files, if the batch runs on the cluster.
    """

    on_driver: bool
    reduce_tasks: int


def plan_exchange(size: BatchSize, cores: Cores, *, fits_driver: bool) -> ExchangePlan:
    """Choose the faster exchange.

    Args:
        size: the expected size of the batch.
        cores: the cores of the driver and of the cluster.
        fits_driver: whether the driver has the memory for the batch.
    """
    tasks = _reduce_tasks(size, cores)
    if not fits_driver:
        return ExchangePlan(on_driver=False, reduce_tasks=tasks)
    driver_s = size.bytes * _COLLECT_S_OF_A_BYTE + size.work_s / cores.driver
    shuffled_s = size.work_s + size.bytes * _SHUFFLE_S_OF_A_BYTE
    on_driver = not cores.cluster or driver_s <= _CLUSTER_START_S + shuffled_s / cores.cluster
    return ExchangePlan(on_driver=on_driver, reduce_tasks=tasks)


def _reduce_tasks(size: BatchSize, cores: Cores) -> int:
    """Return enough tasks for all cores, unless tasks would be too small to be worth their start.

    A bucket belongs to one task, so there are not more tasks than buckets, if these are known.
    """
    usable = cores.cluster or math.ceil(cores.driver)
    wanted = math.ceil(size.work_s / _WORK_S_OF_A_TASK)
    most = wanted if size.grows or not size.buckets else size.buckets
    return max(1, min(wanted, most, usable * _TASKS_OF_A_CORE))
