"""What studies do alike: they go on where they were interrupted, and refuse in one line."""

from __future__ import annotations

import json
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from simulator.cli.main import INTERRUPTED, main
from simulator.engine.inputs import settled
from simulator.studies import TASKS, store
from simulator.studies.capacity.plan import read_plan as read_capacity_plan
from simulator.studies.contest.plan import read_plan, read_recommend_plan
from tests.composing import composed_jobs
from traces.common.errors import InputError

CHAINS = "[{policy: fixed_chain, grid: {length: [1,3]}}, autoregressive]"
COMMANDS = {  # the words of a small study of each kind
    "tournament": f"policy=cast tournament.rivals='{CHAINS}' tournament.concurrency=[2] "
    "tournament.domains=mixture tournament.resamples=100",
    "recommend": f"max_concurrency=2 recommend.policies='{CHAINS}' recommend.seeds=[0] "
    "recommend.resamples=100",
    "capacity": "policy=autoregressive goodput=tpot:5.3 capacity.of=max_concurrency "
    "capacity.seeds=[0,1] capacity.min_seconds=0.1 capacity.min_requests=100 capacity.most=16",
    "claims": "claims.traces=null claims.profiles=[b300] claims.concurrency=[1] "
    "claims.resamples=100",
    "bounds": "bounds.nodes=7 bounds.batches=[2]",
}
PARALLEL = ("recommend", "capacity")
PLAYED = 3  # before the interruption


def words(task: str, recorded: str, folder: str = "out") -> list[str]:
    given = shlex.split(COMMANDS[task])
    return [f"task={task}", f"trace={recorded}", f"hydra.run.dir={folder}", *given]


def results(folder: str) -> dict[str, bytes]:
    """The files that a study writes when it is finished."""
    return {
        path.name: path.read_bytes()
        for path in Path(folder).iterdir()
        if path.is_file() and path.suffix != ".jsonl"
    }


@pytest.mark.parametrize("task", ["tournament", "recommend", "capacity"])
def test_an_interrupted_study_goes_on(here, recorded, capsys, monkeypatch, task):
    """A finished one plays nothing; both give the same bytes, whoever plays the rest."""
    assert main(words(task, recorded)) == 0
    whole, kept = results("out"), Path(f"out/{task}.jsonl").read_text()
    assert main(words(task, recorded)) == 0
    assert results("out") == whole
    assert Path(f"out/{task}.jsonl").read_text() == kept
    real, played = store.Players.play, []

    def interrupted(self, matches):
        for one in real(self, matches):
            if len(played) == PLAYED:
                raise KeyboardInterrupt
            played.append(one)
            yield one

    again = words(task, recorded, "again")
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(store.Players, "play", interrupted)
        assert main(again) == INTERRUPTED
    said = capsys.readouterr().err
    assert f"kept in again/{task}.jsonl; to go on: hydra.run.dir=again" in said
    lines = kept.splitlines(keepends=True)
    assert Path(f"again/{task}.jsonl").read_text() == "".join(lines[:PLAYED])
    assert not results("again")
    with Path(f"again/{task}.jsonl").open("a") as file:
        file.write('{"key": "cut sho')  # as a crash leaves it
    assert main([*again, *([f"{task}.workers=2"] if task in PARALLEL else [])]) == 0
    assert results("again") == whole
    assert len(Path(f"again/{task}.jsonl").read_text().splitlines()) == len(lines)


def test_seeds_begin_at_the_seed(recorded):
    """Unless they are listed: five to report, one to play a tournament or to tune."""
    for task, read, five in (
        ("tournament", read_plan, (7,)),
        ("recommend", read_recommend_plan, (7, 8, 9, 10, 11)),
        ("capacity", read_capacity_plan, (7, 8, 9, 10, 11)),
    ):
        config = config_of(task, recorded) | {"seed": 7}
        assert read(changed(config, {task: {"seeds": None}})).seeds == five
        assert read(changed(config, {task: {"seeds": [3]}})).seeds == (3,)
    assert read_recommend_plan(config_of("recommend", recorded) | {"seed": 7}).tuning_seeds == (7,)


def config_of(task: str, recorded: str) -> dict:
    return settled(composed_jobs(words(task, recorded))[0])


def changed(config: dict, changes: dict) -> dict:
    """With other values, those of sections beside what the sections hold."""
    sections = {k: config[k] | v for k, v in changes.items() if isinstance(v, dict)}
    return config | changes | sections


def rivals(*entries) -> dict:
    return {"tournament": {"rivals": list(entries)}}


def chain(**grid) -> dict:
    return {"policy": "fixed_chain", "grid": grid}


@pytest.mark.parametrize(
    ("task", "change", "message"),
    [
        ("tournament", {"tournament": {"candidate": "nobody"}}, "tournament.candidate is 'nobody'"),
        ("tournament", {"tournament": {"rivals": "nobody"}}, "tournament.rivals is 'nobody'; acc"),
        ("tournament", {"tournament": {"rivals": []}}, "tournament.rivals is []; accepted:"),
        ("tournament", rivals({"policy": "cast", "g": 1}), "unknown key tournament.rivals[0].g;"),
        ("tournament", rivals("cast", "cast"), "cast stands there twice"),
        ("tournament", rivals("../latency/b300"), "tournament.rivals[0].policy is '../latency"),
        ("tournament", rivals(chain(length=3)), "tournament.rivals[0].grid is {'length': 3}; ac"),
        ("tournament", rivals(chain(size=[3])), "unknown key policy.size"),
        ("tournament", rivals(3), "tournament.rivals[0] is 3; accepted: a mapping"),
        ("tournament", {"tournament": {"profiles": ["b301"]}}, "tournament.profiles is 'b301'; a"),
        ("tournament", {"tournament": {"num_prompts": 4}}, "tournament.num_prompts is 4; accepte"),
        ("tournament", {"request_rate": 5.0}, "request_rate is 5; accepted with task=tournament:"),
        ("tournament", {"workload": {"path": "x.csv"}}, "workload.path is 'x.csv'; accepted with"),
        ("recommend", {"recommend": {"policies": "nobody"}}, "recommend.policies is 'nobody'; ac"),
        ("recommend", {"recommend": {"policies": ["nobody"]}}, "recommend.policies[0].policy is"),
        ("recommend", {"recommend": {"policies": ["published", "cast"]}}, "cast stands there twi"),
        ("recommend", {"num_prompts": 4}, "num_prompts is 4; accepted with task=recommend: null"),
        ("capacity", {"capacity": {"least": 9, "most": 8}}, "capacity.most is 8; accepted: at le"),
        ("capacity", {"capacity": {"least": 1.5}}, "capacity.least is 1.5; accepted with clients"),
        ("capacity", {"capacity": {"min_requests": 99}}, "capacity.min_requests is 99; accepted:"),
        ("capacity", {"capacity": {"max_requests": 99}}, "capacity.max_requests is 99; accepted:"),
        ("capacity", {"goodput": None}, "goodput is null; accepted with task=capacity: objecti"),
        ("capacity", {"goodput": "speed:3"}, "goodput is 'speed:3'; accepted:"),
        ("capacity", {"request_rate": 5.0}, "request_rate is 5.0; accepted with capacity.of=max_"),
        ("capacity", {"num_prompts": 100}, "num_prompts is 100; accepted with task=capacity: n"),
        ("capacity", {"workload": {"arrivals": "file"}}, "workload.arrivals is file; accepted w"),
        ("capacity", {"max_concurrency": None}, "max_concurrency is None; accepted:"),
        (
            "capacity",
            {"goodput": "itl:20", "capacity": {"attained": 0.9}},
            "capacity.attained is 0.9; accepted with an objective for itl",
        ),
        ("claims", {"claims": {"traces": ["nobody"]}}, "claims.traces is 'nobody'; accepted:"),
        ("claims", {"claims": {"profiles": ["b301"]}}, "claims.profiles is 'b301'; accepted:"),
        ("claims", {"request_rate": 5.0}, "request_rate is 5; accepted with task=claims: inf"),
        ("bounds", {"bounds": {"branch": 9}}, "bounds.branch is 9; accepted: up to 8, the ranks"),
        ("bounds", {"bounds": {"width": 3}}, "unknown key bounds.width"),
        ("bounds", {"trace": {"split": "nope"}}, "unknown split 'nope'"),
        ("bounds", {"latency": {"strict": True}}, "(strict): a step of 2 requests"),
    ],
)
def test_bad_settings_are_refused(recorded, task, change, message):
    config = changed(config_of(task, recorded), change)
    with pytest.raises(InputError) as error:
        import_module(TASKS[task]).load(config)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("task", COMMANDS)
def test_a_command_refuses_in_one_line_before_it_begins(here, recorded, capsys, task):
    assert main(words(task, "nobody.safetensors")) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert not Path("out").exists()
    if task == "bounds":
        return
    damaged = json.dumps({"key": "x", "result": {}}) + "\n"
    Path("out").mkdir()
    Path(f"out/{task}.jsonl").write_text(damaged)
    assert main(words(task, recorded)) == 2
    assert f"line 1 is no result of task={task}" in capsys.readouterr().err
    assert Path(f"out/{task}.jsonl").read_text() == damaged
