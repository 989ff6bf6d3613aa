"""The rows that Apache Hudi reads from a table, written as Parquet files."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.golden.make.java_reader import read_snapshot
from tests.golden.make.options import Options
from tests.golden.make.recipe import Recipe
from tests.golden.make.timeline_files import CompletedWrite, completed_writes

_BEGIN = "hoodie.datasource.read.begin.instanttime"
_FROM_THE_START = "000"


def queries_of(recipe: Recipe, table: Path) -> dict[str, dict[str, str]]:
    """List the queries of a table by name, with their options."""
    queries: dict[str, dict[str, str]] = {"snapshot": {}, "read_optimized": {}}
    completed = completed_writes(table)
    asked = [(completed[len(completed) // 2], "")]
    if recipe.asks_each_instant:
        asked += [(write, f"_{number}") for number, write in enumerate(completed)]
    for write, suffix in asked:
        about = _about(write)
        queries |= {f"{kind}{suffix}": about[kind] for kind in recipe.asks_of_the_past}
    if recipe.asks_cdc:
        queries["cdc"] = {"begin": _FROM_THE_START}
    return queries


def keep_answers(
    spark: SparkSession, recipe: Recipe, table: Path, folder: Path
) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Run the queries of a recipe, and write the rows of each to ``folder``.

    Returns:
        The queries that were answered, and the errors of those that Apache Hudi refused.
    """
    answered, refused = {}, {}
    for query, options in queries_of(recipe, table).items():
        try:
            if query == "snapshot" and recipe.snapshot_by_java:
                rows = read_snapshot(spark, table)
            else:
                reader = spark.read.format("hudi").options(**_options_of(query, options))
                rows = reader.load(str(table))
            _save(rows, folder / f"{query}.parquet")
            answered[query] = options
        except Exception as error:
            if not query.startswith(recipe.may_be_refused or "nothing"):
                raise
            refused[query] = _message_of(error)
    return answered, refused


def _message_of(error: Exception) -> str:
    lines = str(error).splitlines()
    return next(line for line in lines if not line.startswith("An error occurred")).lstrip(": ")


def _save(rows: DataFrame, file: Path) -> None:
    folder = file.with_suffix(".folder")
    rows.coalesce(1).write.parquet(str(folder))
    (written,) = folder.glob("*.parquet")
    written.rename(file)
    shutil.rmtree(folder)


def _about(write: CompletedWrite) -> dict[str, dict[str, str]]:
    return {
        "as_of": {"as.of.instant": write.requested_at},
        "incremental": {_BEGIN: write.completed_at or write.requested_at},
    }


def _options_of(query: str, options: Options) -> dict[str, str]:
    query_type = "hoodie.datasource.query.type"
    if query == "cdc":
        cdc = {"hoodie.datasource.query.incremental.format": "cdc", _BEGIN: options["begin"]}
        return {query_type: "incremental", **cdc}
    if query.startswith("incremental"):
        return {query_type: "incremental", **options}
    if query == "read_optimized":
        return {query_type: "read_optimized"}
    return {query_type: "snapshot", **options}
