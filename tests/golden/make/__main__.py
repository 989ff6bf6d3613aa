"""``python -m tests.golden.make NAME …``: create golden tables, each as ``NAME.tar.gz``."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from pathlib import Path

from pyspark.sql import SparkSession

from tests.golden.make.answers import keep_answers
from tests.golden.make.archive import pack
from tests.golden.make.recipe import Recipe
from tests.golden.make.recipes import RECIPES
from tests.golden.make.session import start_session
from tests.golden.make.table_in_making import TableInMaking
from tests.golden.make.timeline_files import completed_writes

_ARCHIVES = Path(__file__).resolve().parents[1]


def main() -> int:
    """Create the named tables; report those that fail, and create the others nevertheless."""
    arguments = _arguments()
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        spark = start_session(Path(folder))
        for name in arguments.names:
            started = time.monotonic()
            try:
                archive = make(spark, RECIPES[name], Path(folder), arguments.into)
            except Exception:
                traceback.print_exc()
                failed.append(name)
                continue
            took_s = time.monotonic() - started
            print(f"{name}: {archive.stat().st_size:,} bytes in {took_s:.0f} s", flush=True)
        spark.stop()
    if failed:
        print(f"not made: {', '.join(failed)}", file=sys.stderr)
    return len(failed)


def make(spark: SparkSession, recipe: Recipe, scratch: Path, into: Path) -> Path:
    """Write a table, query it with Apache Hudi, pack both, and return the path of the archive."""
    folder = scratch / recipe.name
    (folder / "expected").mkdir(parents=True)
    (scratch / f"{recipe.name}-scratch").mkdir()
    table = TableInMaking(
        spark,
        folder / "table",
        scratch / f"{recipe.name}-scratch",
        {**recipe.options, "hoodie.table.name": recipe.name},
    )
    recipe.history(table)
    queries, refused = keep_answers(spark, recipe, table.path, folder / "expected")
    meta = {
        "name": recipe.name,
        "writer": f"Apache Hudi 1.2.0, Spark {spark.version}",
        "options": table.options,
        "steps": table.steps,
        "completed": [write.file_name for write in completed_writes(table.path)],
        "queries": queries,
    }
    if refused:
        meta["refused"] = refused
    (folder / "meta.json").write_text(json.dumps(meta, indent=1), "utf-8")
    archive = into / f"{recipe.name}.tar.gz"
    pack(folder, archive)
    return archive


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.make", description=__doc__)
    parser.add_argument("names", nargs="+", choices=sorted(RECIPES), metavar="NAME")
    parser.add_argument("--into", type=Path, default=_ARCHIVES, help="the folder for the archives")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
