"""What holds of every run, whatever the server: the texts, the clocks, the counts, the routers."""

from __future__ import annotations

import numpy as np

from simulator.engine.arrivals import shuffled_sequences
from tests.served_walk import Walk
from tests.watched import Run


def check_all(run: Run) -> None:
    """Assert every law of a finished run."""
    walks = [Walk(run, server).replay(server.events) for server in run.servers]
    check_ends(run)
    check_texts(run)
    check_clocks(run)
    check_counts(run, walks)
    check_router(run)


def check_ends(run: Run) -> None:
    """Everybody came and is finished or rejected; memory and places are free again."""
    requests = run.facts.requests
    assert not np.isnan(requests["arrival_s"]).any()
    assert (np.isnan(requests["finish_s"]) == requests["rejected"]).all()
    for server in run.servers:
        assert (server.batch, server.requests, server.tokens) == (0, 0, 0)
        assert server._kv.held == 0


def check_texts(run: Run) -> None:
    """Rounds walk a request's text, and from its end into the next of the ring."""
    rounds, recording, work = run.facts.rounds, run.job.recording, run.workload
    offset, counts = recording.anchor_offset, recording.anchor_counts
    for request in np.flatnonzero(~run.facts.requests["rejected"]).tolist():
        own = rounds["request"] == request
        sequence = int(work.sequence[request])
        anchor = int(offset[sequence] + work.first_output[request])
        left = int(work.output_tokens[request]) - (not work.warmup[request])
        hand_overs = 0
        for here, accepted, committed in zip(
            *(rounds[name][own].tolist() for name in ("anchor", "accepted", "committed")),
            strict=True,
        ):
            end = int(offset[sequence] + counts[sequence])
            if anchor == end:
                sequence = next_in_ring(run, sequence)
                anchor, end = int(offset[sequence]), int(offset[sequence] + counts[sequence])
                hand_overs += 1
            assert here == anchor
            assert committed == min(accepted + 1, end - anchor, left)
            anchor += committed
            left -= committed
        assert left == 0
        assert run.facts.requests["hand_overs"][request] == hand_overs


def next_in_ring(run: Run, sequence: int) -> int:
    """The next text of more than one token and of the same domain, in the shuffled order."""
    recording = run.job.recording
    assert run.job.lengths is not None  # recorded texts end where they end
    domain = recording["domain"]
    ring = [
        one
        for one in shuffled_sequences(run.job.settings.seed, run.job.sequences).tolist()
        if recording["output_len"][one] > 1 and domain[one] == domain[sequence]
    ]
    return ring[(ring.index(sequence) + 1) % len(ring)]


def check_clocks(run: Run) -> None:
    """No replica is in two steps at a time, and no request; times are binary fractions: exact."""
    steps, rounds = run.facts.steps, run.facts.rounds
    begin_s, end_s = steps["time_s"], steps["time_s"] + steps["step_s"]
    for replica in range(len(run.servers)):
        own = steps["replica"] == replica
        assert (begin_s[own][1:] >= end_s[own][:-1]).all()
    order = np.argsort(rounds["request"], kind="stable")
    request, step = rounds["request"][order], rounds["step"][order]
    same = request[1:] == request[:-1]
    assert (begin_s[step[1:]] >= end_s[step[:-1]])[same].all()
    first_s = run.facts.requests["first_token_s"]
    assert (begin_s[rounds["step"]] >= first_s[rounds["request"]]).all()
    assert (
        steps["replica"][rounds["step"]] == run.facts.requests["replica"][rounds["request"]]
    ).all()


def check_counts(run: Run, walks: list[Walk]) -> None:
    requests, steps, rounds = run.facts.requests, run.facts.steps, run.facts.rounds
    first = np.count_nonzero(~requests["warmup"] & ~requests["rejected"])
    assert rounds["committed"].sum() + first == requests["output_tokens"].sum()
    pushes = sum(walk.pushes for walk in walks)
    assert pushes == requests["preemptions"].sum() == steps["preempted"].sum()
    # Prompts are read once, and again after every preemption: `Walk` knows which.
    assert sum(walk.read_tokens for walk in walks) == sum(run.cost.prefilled)
    if not pushes:
        came = run.workload.context[~requests["rejected"]]
        assert sum(run.cost.prefilled) == came.sum()


def check_router(run: Run) -> None:
    """Where a request goes, told from the tables alone; not where something ends just then."""
    requests, name = run.facts.requests, run.job.settings.server.router
    replica, replicas = requests["replica"], len(run.servers)
    if name == "round_robin":
        assert replica.tolist() == [one % replicas for one in range(len(replica))]
        return
    steps = run.facts.steps
    ends_s = {*requests["finish_s"].tolist(), *(steps["time_s"] + steps["step_s"]).tolist()}
    context = contexts(run)
    for request, at_s in enumerate(requests["arrival_s"].tolist()):
        if at_s in ends_s:
            continue
        others = np.arange(request)[~requests["rejected"][:request]]
        here = others[requests["finish_s"][others] > at_s]
        least = name == "least_loaded"
        weight = [context(one, at_s) if least else 1 for one in here.tolist()]
        load = np.bincount(replica[here], weight, replicas)
        assert replica[request] == int(np.argmin(load))


def contexts(run: Run):
    """A function of request and time: its tokens of context, or those that it is yet to read."""
    rounds, steps = run.facts.rounds, run.facts.steps
    end_s = (steps["time_s"] + steps["step_s"])[rounds["step"]]

    def context(request: int, at_s: float) -> int:
        own = (rounds["request"] == request) & (end_s <= at_s)
        return int(run.workload.context[request] + rounds["committed"][own].sum())

    return context


def tables(run: Run) -> list[tuple[str, bytes]]:
    """Every column of the run's tables, as bytes."""
    parts = (run.facts.requests, run.facts.steps, run.facts.rounds)
    return [(name, column.tobytes()) for part in parts for name, column in part.items()]
