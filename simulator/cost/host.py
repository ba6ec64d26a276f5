"""Host work of one step: what the CPU does around the device's forwards."""

from __future__ import annotations

from dataclasses import dataclass, fields

from traces.errors import InputError

LONGEST_S = 1e6  # more than any host work; sums stay finite


@dataclass(frozen=True, slots=True)
class HostOverhead:
    """Seconds of host work, added to the device time or hidden under it.

    round_s: every step that drafts. node_s: each draft node of such a step. tree_step_s: extra
    when the step verifies trees (build, mask, KV gather). plain_s: every plain decoding step; kept
    apart because a plain step has no draft, mask or gather, and the one-token probes of the
    published profiles already hold its launch time. overlap: host work runs while the device is
    busy, and only what exceeds the device time is seen.
    """

    round_s: float = 0.0
    node_s: float = 0.0
    tree_step_s: float = 0.0
    plain_s: float = 0.0
    overlap: bool = False

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "overlap":
                if not isinstance(value, bool):
                    raise InputError(f"latency.host.overlap is {value!r}; accepted: true, false")
            elif (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not 0 <= value <= LONGEST_S
            ):
                raise InputError(
                    f"latency.host.{item.name} is {value!r}; accepted: seconds, 0 to {LONGEST_S:g}"
                )

    def seen_s(self, nodes: int, device_s: float, *, drafted: bool, tree: bool) -> float:
        """Host seconds that lengthen a step of ``nodes`` draft nodes in all."""
        if drafted:
            work_s = self.round_s + self.node_s * nodes + (self.tree_step_s if tree else 0.0)
        else:
            work_s = self.plain_s
        return max(0.0, work_s - device_s) if self.overlap else work_s
