"""Word problems with small whole numbers and a worked solution."""

from __future__ import annotations

import numpy as np

from real_runner.training.corpus.names import DAYS, PEOPLE, PLACES
from real_runner.training.corpus.types import Example, between, pick, pick_distinct

ITEMS = (
    "apples pears plums lemons oranges peaches melons onions carrots potatoes eggs muffins "
    "cookies cakes buns rolls candles pens pencils notebooks stamps cards books maps badges "
    "ribbons buttons beads shells stones marbles balloons cups plates bowls spoons towels "
    "socks tickets posters stickers brushes flowers seeds bulbs bricks tiles nails bolts"
).split()
VEHICLES = ("train", "bus", "car", "van", "truck", "boat", "coach", "motorbike", "tram", "ferry")
MACHINES = ("press", "oven", "robot", "loom", "printer", "pump", "packer", "cutter", "mill", "saw")


def _change(rng: np.random.Generator) -> tuple[str, str, int]:
    """Buy two kinds of item and get change."""
    who, (a, b) = pick(rng, PEOPLE), pick_distinct(rng, ITEMS, 2)
    n, m, p, q = (between(rng, 2, 9) for _ in range(4))
    first, second = n * p, m * q
    total = first + second
    paid = (total // 50 + 1) * 50
    question = (
        f"{who} buys {n} {a} at {p} dollars each and {m} {b} at {q} dollars each. "
        f"{who} pays with {paid} dollars. How much change does {who} get?"
    )
    steps = (
        f"The {a} cost {n} x {p} = {first} dollars. The {b} cost {m} x {q} = {second} dollars. "
        f"Together that is {first} + {second} = {total} dollars. "
        f"The change is {paid} - {total} = {paid - total} dollars."
    )
    return question, steps, paid - total


def _sharing(rng: np.random.Generator) -> tuple[str, str, int]:
    """Share boxes of items equally among friends."""
    who, item = pick(rng, PEOPLE), pick(rng, ITEMS)
    friends, each = between(rng, 2, 9), between(rng, 3, 12)
    kept = between(rng, 1, 9)
    total, shared = friends * each + kept, friends * each
    question = (
        f"{who} has {total} {item}. {who} keeps {kept} and shares the rest equally among "
        f"{friends} friends. How many {item} does each friend get?"
    )
    steps = (
        f"{who} starts with {total} {item} and keeps {kept}. "
        f"That leaves {total} - {kept} = {shared} {item} to share. "
        f"Each of the {friends} friends gets {shared} / {friends} = {each} {item}."
    )
    return question, steps, each


def _distance(rng: np.random.Generator) -> tuple[str, str, int]:
    """Add the distances of two legs of a trip."""
    vehicle, (a, b) = pick(rng, VEHICLES), pick_distinct(rng, PLACES, 2)
    fast, slow = between(rng, 4, 12) * 10, between(rng, 2, 8) * 10
    h, k = between(rng, 2, 5), between(rng, 2, 4)
    total = fast * h + slow * k
    question = (
        f"A {vehicle} leaves {a} for {b}. It travels at {fast} km per hour for {h} hours and then "
        f"at {slow} km per hour for {k} hours. How many km does it travel?"
    )
    steps = (
        f"In the first {h} hours the {vehicle} covers {fast} x {h} = {fast * h} km. "
        f"In the next {k} hours it covers {slow} x {k} = {slow * k} km. "
        f"From {a} to {b} it travels {fast * h} + {slow * k} = {total} km."
    )
    return question, steps, total


def _days(rng: np.random.Generator) -> tuple[str, str, int]:
    """Total three days of sales."""
    who, item, start = pick(rng, PEOPLE), pick(rng, ITEMS), between(rng, 0, 6)
    d1, d2, d3 = (DAYS[(start + i) % 7] for i in range(3))
    first, more, factor = between(rng, 5, 40), between(rng, 2, 20), pick(rng, (2, 3))
    second, third = first + more, first * factor
    total = first + second + third
    times = {2: "twice", 3: "three times"}[factor]
    question = (
        f"{who} sold {first} {item} on {d1}. On {d2} {who} sold {more} more than on {d1}, and on "
        f"{d3} {times} as many as on {d1}. How many {item} did {who} sell in all?"
    )
    steps = (
        f"On {d1} {who} sold {first} {item}. On {d2} it was {first} + {more} = {second}. "
        f"On {d3} it was {first} x {factor} = {third}. "
        f"In all that is {first} + {second} + {third} = {total} {item}."
    )
    return question, steps, total


def _rate(rng: np.random.Generator) -> tuple[str, str, int]:
    """Find the hours that a machine needs for the rest of an order."""
    machine, item, place = pick(rng, MACHINES), pick(rng, ITEMS), pick(rng, PLACES)
    speed, hours = between(rng, 3, 25), between(rng, 2, 9)
    done = between(rng, 5, 60)
    order, left = speed * hours + done, speed * hours
    question = (
        f"A {machine} in {place} handles {speed} {item} per hour. An order is for {order} {item} "
        f"and {done} are ready. How many hours does the {machine} need for the rest?"
    )
    steps = (
        f"The order is for {order} {item} and {done} are ready. "
        f"So {order} - {done} = {left} {item} remain. "
        f"At {speed} per hour the {machine} needs {left} / {speed} = {hours} hours."
    )
    return question, steps, hours


def _comparison(rng: np.random.Generator) -> tuple[str, str, int]:
    """Compare two collections after one grows."""
    (a, b), item = pick_distinct(rng, PEOPLE, 2), pick(rng, ITEMS)
    start, packs, size = between(rng, 10, 60), between(rng, 2, 9), between(rng, 3, 12)
    gained = packs * size
    now = start + gained
    other = pick(rng, [n for n in range(8, 120) if n != now])
    more, less = (a, b) if now > other else (b, a)
    high, low = max(now, other), min(now, other)
    question = (
        f"{a} has {start} {item} and gets {packs} packs of {size} more. {b} has {other} {item}. "
        f"Who has more {item} now, and by how many?"
    )
    steps = (
        f"{a} gets {packs} x {size} = {gained} more {item}. Now {a} has {start} + {gained} = {now}. "
        f"{b} has {other}, so {more} has more than {less}. "
        f"The difference is {high} - {low} = {high - low} {item}."
    )
    return question, steps, high - low


def _savings(rng: np.random.Generator) -> tuple[str, str, int]:
    """Save weekly and spend some of it."""
    who, item = pick(rng, PEOPLE), pick(rng, ITEMS)
    start, weekly, weeks = between(rng, 5, 50), between(rng, 4, 20), between(rng, 3, 10)
    saved = weekly * weeks
    total = start + saved
    spent = between(rng, 3, total - 1)
    question = (
        f"{who} has {start} dollars and saves {weekly} dollars a week for {weeks} weeks. Then {who} "
        f"spends {spent} dollars on {item}. How many dollars are left?"
    )
    steps = (
        f"In {weeks} weeks {who} saves {weekly} x {weeks} = {saved} dollars. "
        f"With the first {start} dollars that makes {start} + {saved} = {total} dollars. "
        f"After buying the {item} there are {total} - {spent} = {total - spent} dollars left."
    )
    return question, steps, total - spent


FAMILIES = (_change, _sharing, _distance, _days, _rate, _comparison, _savings)


def make(rng: np.random.Generator) -> Example:
    """A word problem with its worked solution."""
    question, steps, answer = pick(rng, FAMILIES)(rng)
    return Example(
        "arithmetic", f"Problem: {question}\nAnswer:\n", f"{steps} The answer is {answer}."
    )
