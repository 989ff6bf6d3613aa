"""The folder of a broker: its settings, its log and its topics.

<folder>/server.properties   the settings, rewritten at every start because ports may change
<folder>/broker.log          the output of the broker; each start appends to it
<folder>/topics/             Kafka's files; the cluster id in them is generated once
"""

from __future__ import annotations

import base64
import socket
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
SETTINGS_FILE = "server.properties"
LOG_FILE = "broker.log"

_TOPICS_FOLDER = "topics"
_CLUSTER_FILE = "meta.properties"

#: One node is both broker and controller. Retention is unlimited. There are few threads, because
#: the broker shares the processors with the pipeline.
_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=BROKER://{host}:{broker},CONTROLLER://{host}:{controller}
listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=BROKER
controller.listener.names=CONTROLLER
log.dirs={topics}
log.retention.ms=-1
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=2
background.threads=2
log.cleaner.dedupe.buffer.size=16777216
"""


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of a broker. Clients use only the port ``broker``."""

    broker: int
    controller: int

    @property
    def bootstrap(self) -> str:
        """The address for clients, ``host:port``."""
        return f"{HOST}:{self.broker}"


def free_ports(broker: int = 0, controller: int = 0) -> Ports:
    """Return two free ports: the given ones, or any free port in place of a 0.

    Raises:
        OSError: another process listens on a given port.
    """
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for each, port in zip(sockets, (broker, controller), strict=True):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind((HOST, port))
        return Ports(sockets[0].getsockname()[1], sockets[1].getsockname()[1])


def prepare(folder: Path, ports: Ports) -> None:
    """Write the settings; if the folder is new, also write a cluster id.

    For a static quorum, Kafka's ``StorageTool format`` does the same. Writing the file here avoids
    starting another JVM (2.6 s of processor time, half of a broker's start).
    """
    topics = folder / _TOPICS_FOLDER
    topics.mkdir(parents=True, exist_ok=True)
    # The path is relative to the folder in which the broker starts. Kafka splits this setting at
    # commas, and an absolute path may contain a comma.
    settings = _SETTINGS.format(
        host=HOST, broker=ports.broker, controller=ports.controller, topics=_TOPICS_FOLDER
    )
    (folder / SETTINGS_FILE).write_text(settings)
    if not (topics / _CLUSTER_FILE).exists():
        name = f"version=1\nnode.id=1\ncluster.id={_random_id()}\ndirectory.id={_random_id()}\n"
        (topics / _CLUSTER_FILE).write_text(name)


def _random_id() -> str:
    """Return a Kafka ``Uuid``: 16 bytes in base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
