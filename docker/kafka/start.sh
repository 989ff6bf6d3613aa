#!/usr/bin/env bash
# Generates the cluster id on the first start, then runs the broker (exec, so that it gets signals).
set -euo pipefail

class_path='/opt/kafka/jars/*'
sed -e "s/@HOST@/$HOST/" -e "s/@PORT@/$PORT/" /opt/kafka/server.properties > server.properties

if [ ! -f topics/meta.properties ]; then
    id=$(java -cp "$class_path" kafka.tools.StorageTool random-uuid)
    java -cp "$class_path" kafka.tools.StorageTool format -t "$id" -c server.properties
fi

exec java "-Xmx$HEAP" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
    -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
    -Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info \
    -cp "$class_path" kafka.Kafka server.properties
