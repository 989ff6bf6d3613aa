"""Change data capture: what each commit did to each record, with its images before and after."""

from lakemark.read.cdc.change_format import TEXT_SCHEMA, ChangeFormat, TypedChanges, change_schema
from lakemark.read.cdc.changes import AS_TEXT, DELETE, read
from lakemark.read.cdc.plan import CdcPlan, ChangeSplit, Inference, check_logs, plan, plan_commits

__all__ = [
    "AS_TEXT",
    "DELETE",
    "TEXT_SCHEMA",
    "CdcPlan",
    "ChangeFormat",
    "ChangeSplit",
    "Inference",
    "TypedChanges",
    "change_schema",
    "check_logs",
    "plan",
    "plan_commits",
    "read",
]
