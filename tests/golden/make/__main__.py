"""``python -m tests.golden.make NAME …``: create golden tables, each as ``NAME.tar.gz``.

If older releases of Apache Hudi write a table first, each of them runs its steps with
``--release NUMBER --keep FOLDER``, in an environment with its pyspark, before the last call with
``--keep FOLDER`` continues the table.
"""

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
from tests.golden.make.release import CURRENT, RELEASES, Release
from tests.golden.make.session import start_session
from tests.golden.make.table_in_making import TableInMaking
from tests.golden.make.timeline_files import completed_writes

_ARCHIVES = Path(__file__).resolve().parents[1]

#: File with the steps of older releases.
_STEPS = "steps.json"


def main() -> int:
    """Create the named tables; report those that fail, and create the others nevertheless."""
    arguments = _arguments()
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        release = RELEASES[arguments.release]
        spark = start_session(Path(folder), release, arguments.jars)
        work = arguments.keep or Path(folder)
        for name in arguments.names:
            started = time.monotonic()
            try:
                if release is not CURRENT:
                    write_earlier(spark, RECIPES[name], release, work)
                    continue
                archive = make(spark, RECIPES[name], work, arguments.into)
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


def write_earlier(spark: SparkSession, recipe: Recipe, release: Release, work: Path) -> None:
    """Run the steps of an older release, and keep the table in the folder ``work``."""
    table = _table(spark, recipe, release, work)
    dict(recipe.earlier)[release.number](table)
    (work / recipe.name / _STEPS).write_text(json.dumps(table.steps), "utf-8")
    print(f"{recipe.name}: written by Apache Hudi {release.number}", flush=True)


def _table(spark: SparkSession, recipe: Recipe, release: Release, work: Path) -> TableInMaking:
    folder, scratch = work / recipe.name, work / f"{recipe.name}-scratch"
    for needed in (folder, scratch):
        needed.mkdir(parents=True, exist_ok=True)
    table = TableInMaking(
        spark,
        folder / "table",
        scratch,
        {**recipe.options, "hoodie.table.name": recipe.name},
        release,
    )
    steps = folder / _STEPS
    if steps.exists():
        table.steps = json.loads(steps.read_text("utf-8"))
        steps.unlink()
    if recipe.earlier:
        table.steps.append(f"Apache Hudi {release.number}")
    return table


def make(spark: SparkSession, recipe: Recipe, work: Path, into: Path) -> Path:
    """Write a table, query it with Apache Hudi, pack both, and return the path of the archive."""
    table = _table(spark, recipe, CURRENT, work)
    folder = work / recipe.name
    (folder / "expected").mkdir()
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
    text = "the release of Apache Hudi that runs its steps"
    parser.add_argument("--release", choices=RELEASES, default=CURRENT.number, help=text)
    text = "the folder in which older releases keep the tables for the next release"
    parser.add_argument("--keep", type=Path, help=text)
    text = "the folder of the release's jars, if they do not resolve as a bundle"
    parser.add_argument("--jars", type=Path, help=text)
    parser.add_argument("--into", type=Path, default=_ARCHIVES, help="the folder for the archives")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
