"""Sends the events of runs to an OpenLineage server.

A run of a pipeline is a run of the job with the name of the pipeline: ``START``, then ``RUNNING``
after each commit, then ``COMPLETE``, ``ABORT`` or ``FAIL``. The input is the topic, the folder or
the table that is read, and the output is the table. Source: the naming conventions of OpenLineage.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

import attr
from openlineage.client.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    OutputDatasetFacet,
    RunFacet,
    dataset_version_dataset,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    processing_engine_run,
    schema_dataset,
)
from openlineage.client.serde import Serde
from openlineage.client.transport.transport import Transport

from lakemark.config import keys
from lakemark.schema.avro import to_arrow
from sinks.audit import Audit
from streamer.hooks.http_client import HttpClient
from streamer.hooks.messages import utc_text
from streamer.hooks.notices import (
    CommitCompleted,
    Notice,
    Outcome,
    PipelineFacts,
    RunBegan,
    RunEnded,
)
from streamer.hooks.openlineage_settings import DEFAULT_NAMESPACE, check_openlineage
from streamer.hooks.settings import HookSettings

_PRODUCER = f"urn:lakemark:{version('lakemark')}"

_STATES = {
    Outcome.COMPLETED: RunState.COMPLETE,
    Outcome.ABORTED: RunState.ABORT,
    Outcome.FAILED: RunState.FAIL,
}


@attr.define(kw_only=True)
class CommitRunFacet(RunFacet):
    """The facet ``lakemark_commit``: the commit that a ``RUNNING`` event announces."""

    instant: str
    action: str
    recordsRead: int | None  # OpenLineage writes names in camel case
    recordsRejected: int | None
    rowsDeleted: int
    position: str | None

    @staticmethod
    def _get_schema() -> str:
        return "urn:lakemark:facets:commit:1"


class OpenLineageHook:
    """Sends an event for the start and the end of a run, and for each commit.

    Args:
        settings: the URL of the server, the namespace of the job, and the headers.

    Raises:
        InvalidConfig: a setting is missing, unknown or wrong.
    """

    def __init__(self, settings: HookSettings) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": "lakemark"}
        self._http = HttpClient(check_openlineage(settings), headers)
        self._client = OpenLineageClient(transport=_HttpTransport(self._http))
        self._namespace = settings.options.get("namespace", DEFAULT_NAMESPACE)

    def send(self, notice: Notice, /) -> bool:
        """See ``Hook``."""
        match notice:
            case RunBegan():
                event = self._event(notice, RunState.START, utc_text(notice.at), _engine())
            case CommitCompleted():
                event = self._commit_event(notice)
            case RunEnded():
                facets = _error_facets(notice)
                state = _STATES[notice.outcome]
                event = self._event(notice, state, utc_text(notice.at), facets)
            case _:
                return False
        self._client.emit(event)
        return True

    def check(self) -> str:
        """See ``Hook``."""
        return self._http.check()

    def close(self) -> None:
        """See ``Hook``; each request has closed its connection."""

    def _commit_event(self, commit: CommitCompleted) -> RunEvent:
        audit, end = commit.audit, commit.end
        facet = CommitRunFacet(
            instant=commit.instant.requested_at,
            action=commit.instant.action.value,
            recordsRead=audit.records if audit else None,
            recordsRejected=audit.rejected if audit else None,
            rowsDeleted=commit.rows_deleted,
            position=None if end is None else str(end),
        )
        return self._event(
            commit,
            RunState.RUNNING,
            utc_text(commit.completed_at),
            {"lakemark_commit": facet},
            InputDataset(*_source_name(commit.facts), inputFacets=_input_facets(audit)),
            OutputDataset(
                *dataset_name(commit.facts.path),
                facets=_table_facets(commit),
                outputFacets=_output_facets(commit),
            ),
        )

    def _event(
        self,
        notice: RunBegan | CommitCompleted | RunEnded,
        state: RunState,
        time: str,
        run_facets: Mapping[str, RunFacet],
        source: InputDataset | None = None,
        table: OutputDataset | None = None,
    ) -> RunEvent:
        facts = notice.facts
        kind = job_type_job.JobTypeJobFacet(
            processingType="STREAMING", integration="LAKEMARK", jobType="PIPELINE"
        )
        return RunEvent(
            eventTime=time,
            producer=_PRODUCER,
            eventType=state,
            run=Run(str(notice.run_id), dict(run_facets)),
            job=Job(self._namespace, facts.pipeline, {"jobType": kind}),
            inputs=[source or InputDataset(*_source_name(facts))],
            outputs=[table or OutputDataset(*dataset_name(facts.path))],
        )


class _HttpTransport(Transport):
    """Posts events with the client of all hooks, whose errors contain no secrets."""

    kind = "lakemark"

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    def emit(self, event: Any) -> None:
        self._http.post(Serde.to_json(event).encode())


def dataset_name(url: str) -> tuple[str, str]:
    """Return the namespace and the name of a dataset in files, by OpenLineage's conventions."""
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return "file", parts.path
    return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/") or "/"


def _source_name(facts: PipelineFacts) -> tuple[str, str]:
    if facts.source_kind != "kafka":
        return dataset_name(facts.source)
    first = facts.brokers.split(",")[0].strip().rpartition("://")[2]
    return f"kafka://{first}", facts.source


def _engine() -> dict[str, RunFacet]:
    facet = processing_engine_run.ProcessingEngineRunFacet(version("lakemark"), name="lakemark")
    return {"processing_engine": facet}


def _error_facets(ended: RunEnded) -> dict[str, RunFacet]:
    if ended.outcome is not Outcome.FAILED:
        return {}
    message = f"{ended.error_type}: {ended.error}"
    return {"errorMessage": error_message_run.ErrorMessageRunFacet(message, "PYTHON")}


def _input_facets(audit: Audit | None) -> dict[str, InputDatasetFacet]:
    if audit is None:
        return {}
    facet = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rowCount=audit.records)
    return {"inputStatistics": facet}


def _output_facets(commit: CommitCompleted) -> dict[str, OutputDatasetFacet]:
    facet = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=commit.rows_written,
        size=commit.bytes_written,
        fileCount=len(commit.metadata.write_stats),
    )
    return {"outputStatistics": facet}


def _table_facets(commit: CommitCompleted) -> dict[str, DatasetFacet]:
    instant = commit.instant.requested_at
    facets: dict[str, DatasetFacet] = {
        "version": dataset_version_dataset.DatasetVersionDatasetFacet(instant)
    }
    schema = commit.metadata.extra_metadata.get(keys.SCHEMA)
    if schema is not None:
        fields = [
            schema_dataset.SchemaDatasetFacetFields(column.name, str(column.type))
            for column in to_arrow(schema)
        ]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields)
    return facets
