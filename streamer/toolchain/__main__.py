"""``python -m streamer.toolchain [java|jars|connector|kafka]``: downloads jars, prints paths.

java       print the Java that is used
jars       print this Java, and the folders of the connector's and the broker's jars (default)
connector  print only the jars of Spark's Kafka connector, one per line
kafka      print only the jars of the Kafka broker, one per line
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lakemark.errors import HudiError
from streamer.toolchain import find_java, kafka_jars, spark_kafka_jars


def main(arguments: Sequence[str]) -> int:
    """Run as the module's docstring describes; return 1 on failure, 2 for an unknown argument."""
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
