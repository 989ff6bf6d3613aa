"""The status of one pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import nlargest

import pyarrow as pa

from streamer.config.masking import redact_tree
from streamer.config.pipeline import PipelineConfig
from streamer.events import ActionRequested, Listener
from streamer.health import Condition, Judge, Verdict
from streamer.metrics.run_metrics import PartitionLag, RunMetrics
from streamer.requested_services import RunnableService
from streamer.status.control import PipelineControl, RunAction
from streamer.status.history import RunHistory, total_lag
from streamer.status.table_status import TableStatus

#: How many partitions are shown: those with the largest lag.
_PARTITIONS = 256


class PipelineStatus:
    """Collects the status of one pipeline from what the process knows. Any thread may use it.

    Args:
        name: the name of the pipeline.
        source: the topic, or the path of the folder.
        config: the settings; None for a search for topics, or a topic without a pipeline.
        metrics: the metrics of the pipeline.
        history: the recent events of the pipeline.
        health: the health of the pipeline.
        redacted: removes secrets from a text.
        control: the switches of the pipeline.
        listener: receives the event of an action.
    """

    def __init__(
        self,
        name: str,
        source: str,
        config: PipelineConfig | None,
        metrics: RunMetrics,
        history: RunHistory,
        health: Judge,
        redacted: Callable[[str], str],
        control: PipelineControl,
        listener: Listener,
    ) -> None:
        self.name, self._source, self._config = name, source, config
        self._metrics, self._history, self._health = metrics, history, health
        self._redacted, self._control, self._listener = redacted, control, listener
        self._tables: tuple[TableStatus, ...] = ()
        self._columns: Callable[[], pa.Schema] | None = None

    def watch(self, tables: tuple[TableStatus, ...], columns: Callable[[], pa.Schema]) -> None:
        """Also report the tables and the columns of the pipeline, once they are open."""
        self._tables, self._columns = tables, columns

    def note_lag(self) -> None:
        """Remember the lag as the metrics report it now; called after each poll."""
        if self._metrics.lag:
            self._history.add_lag(*self._total_lag())

    def possible_actions(self) -> tuple[RunAction, ...]:
        """Return the actions that the pipeline can perform now."""
        if self._health.verdict().condition is Condition.ENDED:
            return ()
        return self._control.possible()

    def perform(self, action: RunAction) -> None:
        """Ask the pipeline for a possible action, and report that it was asked for."""
        self._listener(ActionRequested(action.value))
        self._control.perform(action)

    def possible_services(self) -> tuple[RunnableService, ...]:
        """Return the table services that can be requested now."""
        if self._health.verdict().condition is Condition.ENDED:
            return ()
        return self._control.possible_services()

    def request(self, service: RunnableService) -> None:
        """Ask the pipeline for a possible service, and report that it was asked for."""
        self._listener(ActionRequested(f"run {service.value}"))
        self._control.request(service)

    def report(self, *, with_details: bool) -> dict[str, object]:
        """Return the status as JSON values, without secrets.

        Args:
            with_details: whether the result has ``details``.
        """
        facts = self._summary()
        if with_details:
            facts["details"] = self._details()
        redacted = redact_tree(facts, self._redacted)
        assert isinstance(redacted, dict)
        # Clients ask for the pipeline by its name, and compare its state.
        return {**redacted, "name": self.name, "state": facts["state"]}

    def _summary(self) -> dict[str, object]:
        verdict, (records, seconds) = self._health.verdict(), self._total_lag()
        return {
            "name": self.name,
            "source": self._source,
            "table": "" if self._config is None else self._config.table.path,
            "state": self._state(verdict),
            "reason": self._reason(verdict),
            "is_ready": verdict.is_ready,
            "actions": [one.value for one in self.possible_actions()],
            "runnable_services": [one.value for one in self.possible_services()],
            "lag_records": records,
            "lag_s": seconds,
            **self._history.summary(),
        }

    def _state(self, verdict: Verdict) -> str:
        if verdict.condition is Condition.ENDED:
            return "failed" if self._history.has_failed else "stopped"
        if verdict.condition is not Condition.RUNNING:
            return verdict.condition.name.lower()
        if self._control.paused.is_set():
            return "pausing"
        return "running" if verdict.is_ready else "starting"

    def _reason(self, verdict: Verdict) -> str:
        """Return the reason of a verdict; after a failure with its message.

        The answers of ``/health`` do not have the message, because it may quote a record.
        """
        is_failing = verdict.condition is Condition.FAILING
        has_failed = verdict.condition is Condition.ENDED and self._history.has_failed
        failure = self._history.failure if is_failing or has_failed else ""
        return f"{verdict.reason}: {failure}" if failure else verdict.reason

    def _total_lag(self) -> tuple[int | None, float | None]:
        return total_lag((one.records, one.seconds) for one in self._metrics.lag)

    def _details(self) -> dict[str, object]:
        columns = None if self._columns is None else self._columns()
        return {
            "lag": self._lag_facts(),
            "tables": [one.facts() for one in self._tables],
            "columns": [] if columns is None else _column_facts(columns),
            "settings": self._settings(),
            **self._history.details(),
        }

    def _lag_facts(self) -> dict[str, object]:
        partitions = self._metrics.lag
        shown = nlargest(_PARTITIONS, partitions, lambda one: one.records or 0)
        shown.sort(key=lambda one: one.partition)
        return {
            "seen_at": self._metrics.lag_seen_at,
            "num_partitions": len(partitions),
            "partitions": [_partition_facts(one) for one in shown],
        }

    def _settings(self) -> Mapping[str, object]:
        if self._config is None:
            return {}
        settings: Mapping[str, object] = self._config.model_dump(mode="json", by_alias=True)
        return settings


def _partition_facts(lag: PartitionLag) -> dict[str, object]:
    return {
        "partition": lag.partition,
        "next_offset": lag.next_offset,
        "records": lag.records,
        "seconds": lag.seconds,
    }


def _column_facts(columns: pa.Schema) -> list[dict[str, object]]:
    return [{"name": field.name, "type": str(field.type)} for field in columns]
