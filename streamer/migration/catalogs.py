"""Translates the sync of a job to a Hive metastore or to AWS Glue.

Source: ``StreamSync.runMetaSync``, ``HoodieSyncConfig``, ``HiveSyncConfigHolder`` and
``HiveSyncTool`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakemark.catalogs.open_catalog import CatalogKind, check_catalog
from lakemark.errors import InvalidConfig
from streamer.config.masking import holds_secret
from streamer.migration.job import TARGET_PATH, TARGET_TABLE, Job
from streamer.migration.outcome import Harmless, Missing, Outcome, Sets
from streamer.migration.rule import shown

_ENABLED = (
    "--enable-sync",
    "--enable-hive-sync",
    "hoodie.datasource.hive_sync.enable",
    "hoodie.datasource.meta.sync.enable",
)
_TOOLS, _HIVE_ALONE = "--sync-tool-classes", "--enable-hive-sync"
_PREFIX = "hoodie.datasource.hive_sync."
_DATABASE, _TABLE, _URIS = f"{_PREFIX}database", f"{_PREFIX}table", f"{_PREFIX}metastore.uris"
_CREATES, _STRATEGY = f"{_PREFIX}auto_create_database", f"{_PREFIX}table.strategy"
_NO_SUFFIX, _PARAMETERS = f"{_PREFIX}skip_ro_suffix", f"{_PREFIX}table_properties"
_DETAILS = (_DATABASE, _TABLE, _URIS, _CREATES, _STRATEGY, _NO_SUFFIX, _PARAMETERS)

_KINDS = {"HiveSyncTool": CatalogKind.HIVE, "AwsGlueCatalogSyncTool": CatalogKind.GLUE}
_STRATEGIES = {"ALL": "all", "RT": "current", "RO": "read_optimized"}

#: All options and properties that are combined here.
_NAMES = (*_ENABLED, _TOOLS, *_DETAILS)


def convert_catalogs(job: Job) -> Iterator[Outcome]:
    """Yield the section ``catalogs``, and what of the sync it cannot express."""
    enabled = tuple(name for name in _ENABLED if job.is_set(name))
    if not enabled:
        yield from _harmless(job.named(*_NAMES), "the job registers its table in no catalog")
        return
    yield from _harmless(
        tuple(name for name in job.named(*_ENABLED) if name not in enabled), "it asks for nothing"
    )
    found = list(_catalogs(job, enabled))
    registered = [one for one in found if isinstance(one, dict)]
    yield from (one for one in found if isinstance(one, Missing))
    if registered:
        names = tuple(dict.fromkeys((*enabled, *job.named(_TOOLS, _DATABASE, _TABLE, _URIS))))
        kinds = " and ".join(f"'lakemark[{one['kind']}]'" for one in registered)
        comment = f"A catalog needs pip install {kinds}. A failed sync stops no batch."
        yield Sets("catalogs", registered, names, comment)
        yield from _rest(job)
    else:
        rest = (*enabled, *job.named(_TOOLS, *_DETAILS))
        yield from _harmless(rest, "the pipeline registers its table in no catalog")


def _catalogs(job: Job, enabled: tuple[str, ...]) -> Iterator[dict[str, object] | Missing]:
    """Yield each catalog as the pipeline file describes it, or why it cannot."""
    tools = [one.strip() for one in job.get(_TOOLS, "HiveSyncTool").split(",") if one.strip()]
    tools += ["HiveSyncTool"] if job.is_set(_HIVE_ALONE) else []
    for tool in dict.fromkeys(one.rpartition(".")[2] for one in tools):
        kind = _KINDS.get(tool)
        if kind is None:
            remedy = (
                f"{shown(_TOOLS, tool)}: only a Hive metastore and AWS Glue have a counterpart; "
                "run this sync tool of Apache Hudi as a separate job"
            )
            yield Missing(job.named(_TOOLS) or enabled, remedy)
        elif kind is CatalogKind.HIVE and not job.has(_URIS):
            remedy = (
                f"{_URIS} is missing, because the job found the metastore in hive-site.xml or "
                "used JDBC; add catalogs with options.uris, the thrift:// URL of the metastore"
            )
            yield Missing(enabled, remedy)
        else:
            yield _checked(job, kind, _describe(job, kind))


def _checked(
    job: Job, kind: CatalogKind, catalog: dict[str, object]
) -> dict[str, object] | Missing:
    """Return a catalog, or why its options are refused."""
    options = {"uris": job.get(_URIS)} if kind is CatalogKind.HIVE else {}
    try:
        check_catalog(kind, options)
    except InvalidConfig as error:
        return Missing(job.named(_URIS), f"{error}; add catalogs with the right options")
    return catalog


def _describe(job: Job, kind: CatalogKind) -> dict[str, object]:
    path = job.get(TARGET_PATH)
    own = {"kind": kind.value, "database": job.get(_DATABASE) or "default"}
    settings: dict[str, object] = {**own}
    if job.has(_TABLE) and job.get(_TABLE) != job.get(TARGET_TABLE):
        settings["table"] = job.get(_TABLE)
    if path.startswith("s3a://") and not holds_secret(path):
        settings["location"] = path  # as Spark with Hadoop's client reads it
    strategy = _STRATEGIES.get(job.get(_STRATEGY, "ALL").upper(), "all")
    if job.is_merge_on_read and strategy != "all":
        settings["merge_on_read"] = strategy
    if job.has(_CREATES) and not job.is_set(_CREATES):
        settings["create_database"] = False
    if kind is CatalogKind.HIVE:
        settings["options"] = {"uris": job.get(_URIS)}
    return settings


def _rest(job: Job) -> Iterator[Outcome]:
    """Yield what becomes of the details that are not names or addresses."""
    yield from _harmless(job.named(_CREATES), "catalogs.create_database has its meaning")
    strategy = job.get(_STRATEGY, "ALL").upper()
    if strategy not in _STRATEGIES:
        remedy = f"{shown(_STRATEGY, strategy)}: choose the names with catalogs.merge_on_read"
        yield Missing((_STRATEGY,), remedy)
    else:
        yield from _harmless(job.named(_STRATEGY), "catalogs.merge_on_read has its meaning")
    if job.is_set(_NO_SUFFIX) and job.is_merge_on_read:
        remedy = (
            "a table that is read optimized has its own name, with the suffix _ro, unless "
            "catalogs.merge_on_read is read_optimized; let queries use this name"
        )
        yield Missing((_NO_SUFFIX,), remedy)
    else:
        yield from _harmless(job.named(_NO_SUFFIX), "it asks for nothing")
    if job.has(_PARAMETERS):
        yield Missing((_PARAMETERS,), "set them in catalogs.parameters")
    else:
        yield from _harmless(job.named(_PARAMETERS), "it is empty")


def _harmless(names: tuple[str, ...], reason: str) -> Iterator[Outcome]:
    if names:
        yield Harmless(names, reason)
