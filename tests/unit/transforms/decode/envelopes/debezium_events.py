"""The events that the documentation of Debezium's connectors shows, one life of a row each.

Source: "Data change events" of the connectors for PostgreSQL, MySQL, SQL Server and MongoDB.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Event = Mapping[str, Any]

ANNE = {"first_name": "Anne", "last_name": "Kretchmar", "email": "annek@noanswer.org"}
ANNE_MARIE = {**ANNE, "first_name": "Anne Marie"}
JOHN = {"id": 1005, "first_name": "john", "last_name": "doe", "email": "john.doe@example.org"}
NOREPLY = {**JOHN, "email": "noreply@example.org"}
DOCUMENT = (
    '{"_id" : {"$numberLong" : "1004"},"first_name" : "Anne","last_name" : "Kretchmar",'
    '"email" : "annek@noanswer.org"}'
)
CHANGED_DOCUMENT = DOCUMENT.replace("Anne", "Anne Marie")


def event(
    op: str, ts_ms: int, source: Event, before: object = None, after: object = None
) -> dict[str, Any]:
    other = {"ts_us": ts_ms * 1000, "ts_ns": ts_ms * 1_000_000, "transaction": None}
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": ts_ms, **other}


def _postgres(lsn: int, tx_id: int, *, snapshot: bool = False) -> Event:
    return {
        "version": "3.4.0.Final",
        "connector": "postgresql",
        "name": "PostgreSQL_server",
        "ts_ms": 1559033904863,
        "snapshot": snapshot,
        "db": "postgres",
        "sequence": '["24023119","24023128"]',
        "schema": "public",
        "table": "customers",
        "txId": tx_id,
        "lsn": lsn,
        "xmin": None,
    }


def _mysql(ts_ms: int, pos: int, query: str) -> Event:
    return {
        "version": "3.4.0.Final",
        "connector": "mysql",
        "name": "mysql-server-1",
        "ts_ms": ts_ms,
        "snapshot": False,
        "db": "inventory",
        "table": "customers",
        "server_id": 223344,
        "gtid": None,
        "file": "mysql-bin.000003",
        "pos": pos,
        "row": 0,
        "thread": 7,
        "query": query,
    }


def _sqlserver(ts_ms: int, change_lsn: str | None, commit_lsn: str, serial: str | None) -> Event:
    return {
        "version": "3.4.0.Final",
        "connector": "sqlserver",
        "name": "server1",
        "ts_ms": ts_ms,
        "snapshot": "true" if change_lsn is None else False,
        "db": "testDB",
        "schema": "dbo",
        "table": "customers",
        "change_lsn": change_lsn,
        "commit_lsn": commit_lsn,
        "event_serial_no": serial,
    }


def _mongodb(order: int) -> Event:
    return {
        "version": "3.4.0.Final",
        "connector": "mongodb",
        "name": "fulfillment",
        "ts_ms": 1558965508000,
        "snapshot": False,
        "db": "inventory",
        "rs": "rs0",
        "collection": "customers",
        "ord": order,
        "h": 1546547425148721999,
    }


POSTGRES = (
    event("c", 1559033904863, _postgres(24023128, 555, snapshot=True), None, {"id": 1, **ANNE}),
    event("u", 1465584025523, _postgres(24023128, 556), {"id": 1}, {"id": 1, **ANNE_MARIE}),
    event("d", 1465581902461, _postgres(46523128, 556), {"id": 1}),
)
MYSQL = (
    event("c", 1465491411815, _mysql(0, 154, "INSERT …"), None, {"id": 1004, **ANNE}),
    event(
        "u",
        1465581029523,
        _mysql(1465581029100, 484, "UPDATE …"),
        {"id": 1004, **ANNE},
        {"id": 1004, **ANNE_MARIE},
    ),
    event("d", 1465581902461, _mysql(1465581902300, 805, "DELETE …"), {"id": 1004, **ANNE_MARIE}),
)
SQLSERVER = (
    event(
        "c",
        1559729471739,
        _sqlserver(1559729468470, "00000027:00000758:0003", "00000027:00000758:0005", "1"),
        None,
        JOHN,
    ),
    event(
        "u",
        1559729998706,
        _sqlserver(1559729995937, "00000027:00000ac0:0002", "00000027:00000ac0:0007", "2"),
        JOHN,
        NOREPLY,
    ),
    event(
        "d",
        1559730450205,
        _sqlserver(1559730445243, "00000027:00000db0:0005", "00000027:00000db0:0007", "1"),
        NOREPLY,
    ),
)
#: The deletion as the connector sends it without the setting that records the former document.
MONGODB = (
    event("c", 1558965515240, _mongodb(5), None, DOCUMENT),
    {
        **event("u", 1465491461815, _mongodb(6), DOCUMENT, CHANGED_DOCUMENT),
        "updateDescription": {
            "removedFields": None,
            "updatedFields": '{"first_name": "Anne Marie"}',
            "truncatedArrays": None,
        },
    },
    event("d", 1465495462115, _mongodb(31)),
)
MONGODB_KEY = {"id": "1004"}

#: A row of a snapshot of SQL Server, which has no LSN of a change.
SQLSERVER_SNAPSHOT = event(
    "r", 1588252618953, _sqlserver(0, None, "00000025:00000d98:00a2", None), None, JOHN
)


def with_schema(payload: object) -> dict[str, object]:
    """Return an event as Kafka Connect writes it with ``schemas.enable``."""
    return {"schema": {"type": "struct", "fields": [], "optional": False}, "payload": payload}
