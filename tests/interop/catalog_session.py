"""One Spark session with a Hive metastore: lets Apache Hudi register tables, and runs queries.

``python -m tests.interop.catalog_session REQUEST ANSWER``, with pyspark 3.5. The request is a file
of JSON: the ``uris`` of the metastore, the ``syncs`` (the properties of ``HiveSyncTool``), and the
``queries`` in SQL. The answer is the rows of each query, in JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.interop.oracle_server import claim_standard_output, start_session


def main() -> None:
    """Answer one request."""
    claim_standard_output()
    request_path, answer_path = map(Path, sys.argv[1:])
    request = json.loads(request_path.read_text())
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": request["uris"],
    }
    spark = start_session("1g", "UTC", settings)
    for properties in request["syncs"]:
        _register(spark, properties)
    answers = [[row.asDict() for row in spark.sql(query).collect()] for query in request["queries"]]
    answer_path.write_text(json.dumps(answers, default=str))
    spark.stop()


def _register(spark: SparkSession, properties: dict[str, str]) -> None:
    """Let Apache Hudi register a table."""
    jvm: Any = spark._jvm
    given = jvm.java.util.Properties()
    for name, value in properties.items():
        given.setProperty(name, value)
    context: Any = spark.sparkContext
    tool = jvm.org.apache.hudi.hive.HiveSyncTool(given, context._jsc.hadoopConfiguration())
    tool.syncHoodieTable()


if __name__ == "__main__":
    main()
