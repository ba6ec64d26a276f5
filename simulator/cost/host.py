"""Host work of one step: what the CPU does around the device's forwards."""

from __future__ import annotations

from dataclasses import dataclass, fields

from traces.errors import InputError

LONGEST_S = 1e6  # more than any host work; sums stay finite


@dataclass(frozen=True, slots=True)
class HostOverhead:
    """Seconds of host work, added to the device time or hidden under it.

    round_s: every step that drafts. request_s: each request of such a step. node_s: each draft
    node that it verifies. ordered_node_s: each draft node that the host put in order for it,
    verified or not. tree_step_s: extra when the step verifies trees (build, mask, KV gather).
    plain_s: every plain decoding step; kept apart because a plain step has no draft, mask or
    gather, and the one-token probes of the published profiles already hold its launch time.
    plain_request_s: each request of such a step. fed_step_s: extra of a plain step whose states are
    kept for a drafter that rests. catch_up_token_s: each token a drafter that rested has to read
    before it drafts again; a part of drafting, not hidden by overlap. overlap: host work runs while
    the device is busy, and only what exceeds the device time is seen.
    """

    round_s: float = 0.0
    node_s: float = 0.0
    tree_step_s: float = 0.0
    plain_s: float = 0.0
    request_s: float = 0.0
    ordered_node_s: float = 0.0
    plain_request_s: float = 0.0
    fed_step_s: float = 0.0
    catch_up_token_s: float = 0.0
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

    def seen_s(
        self,
        nodes: int,
        device_s: float,
        *,
        requests: int,
        drafted: bool,
        tree: bool,
        ordered: int = 0,
        fed: bool = False,
    ) -> float:
        """Host seconds that lengthen a step of ``requests`` requests.

        Args:
            nodes: draft nodes verified in all.
            device_s: seconds the device is busy.
            requests: of the step.
            drafted: whether it paid a draft.
            tree: whether it verifies trees.
            ordered: draft nodes put in order in all.
            fed: a plain step whose states a resting drafter will read.
        """
        if drafted:
            work_s = self.round_s + self.node_s * nodes + (self.tree_step_s if tree else 0.0)
            work_s += self.request_s * requests + self.ordered_node_s * ordered
        else:
            work_s = self.plain_s + self.plain_request_s * requests
            work_s += self.fed_step_s if fed else 0.0
        return max(0.0, work_s - device_s) if self.overlap else work_s
