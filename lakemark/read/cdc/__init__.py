"""Change data capture: what each commit did to each record, with its images before and after."""

from lakemark.read.cdc.changes import SCHEMA, read
from lakemark.read.cdc.plan import CdcPlan, ChangeSplit, Inference, plan

__all__ = ["SCHEMA", "CdcPlan", "ChangeSplit", "Inference", "plan", "read"]
