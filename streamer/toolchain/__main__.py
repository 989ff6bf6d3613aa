"""``python -m streamer.toolchain [java|jars|connector|kafka]``: download and print paths.

java       the Java that is used
jars       Java, and the jars of Spark's Kafka connector and of the broker
connector  only the jars of the connector, one a line
kafka      only the jars of the broker, one a line
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lakemark.errors import HudiError
from streamer.toolchain import find_java, kafka_jars, spark_kafka_jars


def main(arguments: Sequence[str]) -> int:
    """Run as the module's docstring describes; returns 1 on failure."""
    what = arguments[0] if arguments else "jars"
    if what not in ("java", "jars", "connector", "kafka"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print("\n".join(_lines(what)))
    except HudiError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _lines(what: str) -> list[str]:
    if what == "kafka":
        return [str(jar) for jar in kafka_jars()]
    if what == "connector":
        return [str(jar) for jar in spark_kafka_jars()]
    java = find_java()
    lines = [f"Java {java.version}: {java.home}"]
    if what == "jars":
        connector, broker = spark_kafka_jars(), kafka_jars()
        lines.append(f"Kafka connector of Spark: {len(connector)} jars in {connector[0].parent}")
        lines.append(f"Kafka broker: {len(broker)} jars in {broker[0].parent}")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
