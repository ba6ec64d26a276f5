"""The server's memory and its prompts: blocks, admission, preemption, chunks, the token budget."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.cost import find_profile
from simulator.engine.admission import Entry, KvBlocks, Reading
from simulator.engine.settings import ServerSettings
from tests.serving import STEP_S, ConstantCost, Plain, Watched, serve
from tests.synthetic import make_pool
from traces.common.errors import InputError

U = STEP_S


@pytest.fixture(scope="module")
def recording():
    """Eight texts of 12 tokens and prompts of their own length."""
    return make_pool(np.random.default_rng(3), sequences=8, depths=4, lengths=[12] * 8)


def rules(**settings) -> ServerSettings:
    return ServerSettings(**settings)


# ---------------------------------------------------------------- blocks


def test_blocks_are_whole_and_the_watermark_is_left_free():
    """100 blocks of 16; 37 tokens take 3, and 1.5 % of 100 blocks are 2."""
    kv = KvBlocks(ServerSettings(kv_tokens=1607).kv_blocks, 16, 0.015)
    assert (kv.total, kv.blocks(37), kv.blocks(48), kv.blocks(49)) == (100, 3, 3, 4)
    assert kv.admits(3 * 16, 95, alone=False)  # 95 + 3 + 2
    assert not kv.admits(3 * 16 + 1, 95, alone=False)
    assert kv.admits(5 * 16, 95, alone=True)
    assert kv.fits(1600)
    assert not kv.fits(1601)


# ---------------------------------------------------------------- memory


def test_a_server_without_room_waits_and_pushes_out(recording):
    """Two clients, room for one text and a half: the second is pushed out and read again."""
    prompt = int(recording["prompt_len"].max())
    limit = rules(kv_tokens=2 * prompt + 14, kv_block=1, watermark=0.0)
    cost = ConstantCost(prompt_token_s=U)
    facts = serve(recording, Plain(), cost, max_concurrency=2, num_prompts=8, server=limit)
    assert facts.requests["preemptions"].sum() > 0
    assert facts.steps["preempted"].sum() == facts.requests["preemptions"].sum()
    assert facts.steps["kv_blocks"].max() <= 2 * prompt + 14
    # Everything is still written, once: rounds and first tokens.
    assert facts.rounds["committed"].sum() + (~facts.requests["warmup"]).sum() == (
        facts.requests["output_tokens"].sum()
    )
    # What is pushed out is read again: more prompts are read than requests sent.
    assert len(cost.prefilled) == 8 + facts.requests["preemptions"].sum()


def test_the_texts_are_those_of_a_server_with_room(recording):
    """Memory changes when, not what: every request has the same rounds in the same order."""

    def by_request(facts):
        order = np.argsort(facts.rounds["request"], kind="stable")
        return {name: facts.rounds[name][order].tolist() for name in ("anchor", "committed")}

    load = {"max_concurrency": 3, "num_prompts": 12}
    prompt = int(recording["prompt_len"].max())
    tight = rules(kv_tokens=2 * prompt + 20, kv_block=2)
    few = serve(recording, Watched(2), **load, server=tight)
    assert few.requests["preemptions"].sum() > 0
    many = serve(recording, Watched(2), **load)
    assert by_request(few)["committed"] != []
    assert set(few.rounds["anchor"]) <= set(range(recording.num_anchors))
    assert few.requests["output_tokens"].tolist() == many.requests["output_tokens"].tolist()


def test_nodes_hold_memory_while_they_are_verified(recording):
    """Alone: context + root + nodes, in blocks of one token; what does not fit is not verified."""
    prompt = int(recording["prompt_len"].max())
    need = prompt + 12  # the longest text, its last token's keys never written
    policy = Watched(4)
    limit = rules(kv_tokens=need, kv_block=1, watermark=0.0)
    facts = serve(recording, policy, max_concurrency=1, num_prompts=8, server=limit)
    contexts = [int(step.load.context[0]) for step in policy.steps]
    asked = [int(np.minimum(step.draft.size, 4)[0]) for step in policy.steps]
    expected = [min(nodes, need - at - 1) for nodes, at in zip(asked, contexts, strict=True)]
    assert facts.rounds["width"].tolist() == expected
    assert min(np.subtract(asked, expected)) == 0
    assert max(np.subtract(asked, expected)) > 0
    held = np.array(contexts) + 1 + np.array(expected)
    assert facts.steps["kv_blocks"].tolist() == held.tolist()


def test_a_request_that_can_never_fit_is_rejected(recording):
    prompts = recording["prompt_len"].astype(int)
    limit = int(prompts.min()) + 14
    assert (prompts + 12 > limit).any()
    facts = serve(
        recording,
        Plain(),
        request_rate=5.0,
        max_concurrency=4,
        num_prompts=8,
        server=rules(kv_tokens=limit, kv_block=1),
    )
    rejected = facts.requests["rejected"]
    behind = prompts[facts.requests["sequence"]] + 11
    assert rejected.tolist() == (behind > limit).tolist()
    assert np.isnan(facts.requests["finish_s"])[rejected].all()
    assert not np.isnan(facts.requests["finish_s"])[~rejected].any()


# ---------------------------------------------------------------- prompts


def entry(tokens: int) -> Entry:
    return Entry([0] * 7, tokens)


def test_chunks_go_to_the_first_prompts_while_the_budget_lasts():
    reading = Reading()
    reading.entries.extend(entry(tokens) for tokens in (5, 9, 4))
    first = reading.chunks(8)
    assert [tokens for _, tokens in first] == [5, 3]
    assert [one.context for one in reading.read(first)] == [5]
    second = reading.chunks(8)
    assert [(one.read, tokens) for one, tokens in second] == [(3, 6), (0, 2)]
    assert len(reading.read(second)) == 1
    assert [tokens for _, tokens in reading.chunks(None)] == [2]


def test_mixed_chunks_share_the_step_with_decoding(recording):
    """A budget of 8 tokens: one goes to each running root, the rest to the prompt."""
    cost = ConstantCost(prompt_token_s=U)
    chunked = rules(prefill="chunked", mixed=True, max_num_batched_tokens=8, max_num_seqs=2)
    facts = serve(recording, Plain(), cost, max_concurrency=2, num_prompts=6, server=chunked)
    steps = facts.steps
    beside = steps["prefill_tokens"]
    assert (beside + steps["packed_tokens"] <= 8).all()
    assert (beside > 0).any()
    assert np.allclose(steps["chunk_s"], beside * U)
    read = sum(tokens for _, tokens in cost.chunks)
    work = facts.requests
    first = np.where(work["warmup"], 12 - work["output_tokens"] - 1, 0)
    assert read == (recording["prompt_len"][work["sequence"]] + first).sum()
    assert len(facts.rounds["request"]) == (work["output_tokens"] - ~work["warmup"]).sum()


def test_separate_chunks_hold_up_decoding(recording):
    """Nothing is decoded while a prompt is read; a chunk is at most the budget."""
    cost = ConstantCost(prompt_token_s=U)
    chunked = rules(prefill="chunked", max_num_batched_tokens=4)
    facts = serve(recording, Plain(), cost, max_concurrency=2, num_prompts=6, server=chunked)
    assert (facts.steps["prefill_tokens"] == 0).all()
    assert max(tokens for _, tokens in cost.chunks) == 4
    whole = serve(
        recording, Plain(), ConstantCost(prompt_token_s=U), max_concurrency=2, num_prompts=6
    )
    # Linear prompts: chunking changes neither the work nor, one at a time, the end.
    assert facts.duration_s == pytest.approx(whole.duration_s)


def test_whole_prompts_may_share_a_step(recording):
    cost = ConstantCost(prompt_token_s=U)
    facts = serve(
        recording, Plain(), cost, max_concurrency=2, num_prompts=6, server=rules(mixed=True)
    )
    assert facts.steps["prefill_tokens"].max() >= recording["prompt_len"].min()


def test_the_shortest_go_first_where_the_queue_knows():
    """Four at once, one slot: texts of 9, 3, 6 and 4 tokens end in the order of their lengths."""
    texts = make_pool(np.random.default_rng(0), sequences=4, depths=3, lengths=[9, 3, 6, 4])
    burst = {"request_rate": 1e6, "max_concurrency": 1, "num_prompts": 4}
    facts = serve(texts, Plain(), **burst, server=rules(scheduling="shortest_first"))
    lengths = texts["output_len"][facts.requests["sequence"]]
    first = int(np.argmin(facts.requests["admitted_s"]))  # was alone in the queue
    rest = np.delete(np.arange(4), first)
    ends = rest[np.argsort(facts.requests["finish_s"][rest])]
    assert lengths[ends].tolist() == sorted(lengths[rest].tolist())
    fcfs = serve(texts, Plain(), **burst)
    assert (np.diff(fcfs.requests["finish_s"]) > 0).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kv_tokens": 8}, "server.kv_tokens is 8; accepted: at least one block of 16"),
        ({"max_num_batched_tokens": 512}, "accepted: null with server.prefill=whole"),
        (
            {"prefill": "chunked", "mixed": True, "max_num_batched_tokens": 100},
            "accepted: at least server.max_num_seqs .256.",
        ),
    ],
)
def test_settings_are_refused_in_one_line(settings, message):
    with pytest.raises(InputError, match=message):
        ServerSettings(**settings)


def test_memory_may_be_given_in_gigabytes():
    """Qwen3-8B in bfloat16: 36 layers x 8 heads x 128 x 2 x 2 bytes are 147,456 a token."""
    header = find_profile("h100_sxm_qwen3_8b_table5").header
    settings = ServerSettings(gpu_memory_gb=80, gpu_memory_utilization=0.9).with_memory(header)
    weights = header.model_shape["params_b"] * 1e9 * 2
    assert settings.kv_tokens == int((80e9 * 0.9 - weights) // 147456)
    with pytest.raises(InputError, match="null where server.kv_tokens is given"):
        ServerSettings(gpu_memory_gb=80, kv_tokens=1000)
    with pytest.raises(InputError, match="does not know"):
        ServerSettings(gpu_memory_gb=80).with_memory(find_profile("b300").header)
