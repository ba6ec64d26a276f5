"""Workload files people have: arrivals and lengths of requests, read lazily by column name.

file = open_workload("AzureLLMInferenceTrace_conv.csv")
played = scaled(file, time_scale=2.0, clip=Clip(max_output_tokens=512), limit=1000)
for rows in played:
    rows.time_s, rows.prompt_tokens, rows.output_tokens  # (n,) each, n at most 4096
played.report.describe()
"""

from traces.workloads.opening import FORMATS, open_workload
from traces.workloads.report import Report
from traces.workloads.rows import Rows, Tally
from traces.workloads.scale import Clip, Scaled, scaled
from traces.workloads.workload_file import RowStream, WorkloadFile

__all__ = [
    "FORMATS",
    "Clip",
    "Report",
    "RowStream",
    "Rows",
    "Scaled",
    "Tally",
    "WorkloadFile",
    "open_workload",
    "scaled",
]
