"""The programs on the page about writes from Spark run as they are, one after another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("few_tasks")]

PAGE = (Path(__file__).parents[2] / "docs/writing_from_spark.md").read_text("utf-8")


def test_the_programs_of_the_page_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL)
    names = {"spark": spark}
    for program in programs:
        # Paths in the JVM are relative to the folder in which Spark was started.
        placed = program.replace('"lake/checkpoint"', repr(str(tmp_path / "checkpoint")))
        exec(compile(placed, "docs/writing_from_spark.md", "exec"), names)
    assert len(programs) == 8
