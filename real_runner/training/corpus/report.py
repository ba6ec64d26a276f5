"""Short reports written from a list of facts; the facts fix the wording."""

from __future__ import annotations

import numpy as np

from real_runner.training.corpus.names import DAYS, MONTHS, PEOPLE, PLACES, PRODUCTS, SURNAMES
from real_runner.training.corpus.types import Example, between, pick, pick_distinct

SKIES = ("clear", "cloudy", "foggy", "overcast", "stormy", "hazy")
WINDS = ("north", "south", "east", "west", "northeast", "southwest")
SYMPTOMS = (
    "headache|cough|back pain|fever|sore throat|rash|knee pain|dizziness|earache|tiredness|"
    "stomach pain|swollen ankle"
).split("|")
CARRIERS = ("Northline", "Bluecart", "Swiftway", "Harbor Freight", "Redwing", "Atlas Cargo")


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _weather(rng: np.random.Generator) -> tuple[str, str]:
    place, day, sky = pick(rng, PLACES), pick(rng, DAYS), pick(rng, SKIES)
    high = between(rng, -5, 36)
    low = high - between(rng, 3, 12)
    rain, wind, way = max(0, between(rng, -10, 30)), between(rng, 2, 60), pick(rng, WINDS)
    facts = (
        f"station: {place}\nday: {day}\nsky: {sky}\nhigh: {high}\nlow: {low}\n"
        f"rain mm: {rain}\nwind kmh: {wind}\nwind from: {way}\n"
    )
    feel = "hot" if high >= 28 else "warm" if high >= 18 else "cool" if high >= 8 else "cold"
    wet = f"{'Heavy' if rain > 15 else 'Light'} rain brought {rain} mm"
    wet = wet if rain else "It stayed dry all day"
    breeze = "strong" if wind >= 35 else "moderate" if wind >= 15 else "light"
    risky = wind >= 35 or rain > 15
    advice = "Travellers should take care." if risky else "No warnings are in force."
    text = (
        f"{day} in {place} was {feel} and {sky}. The temperature reached {high} degrees after a low "
        f"of {low} degrees. {wet}, and a {breeze} wind blew from the {way} at {wind} km per hour. "
        f"{advice}"
    )
    return facts, text


def _sales(rng: np.random.Generator) -> tuple[str, str]:
    place, product, manager = pick(rng, PLACES), pick(rng, PRODUCTS), pick(rng, SURNAMES)
    quarter, before, now = between(rng, 1, 4), between(rng, 100, 900), between(rng, 100, 900)
    returns, target = between(rng, 1, 60), between(rng, 2, 9) * 100
    facts = (
        f"office: {place}\nquarter: Q{quarter}\nproduct: {product}\nlast quarter: {before}\n"
        f"this quarter: {now}\ntarget: {target}\nreturns: {returns}\nmanager: {manager}\n"
    )
    move = "rose" if now > before else "fell" if now < before else "held steady"
    goal = "beat" if now > target else "missed" if now < target else "met"
    back = "high" if returns >= 40 else "normal" if returns >= 15 else "low"
    plan = "raise the target" if now > target else "review the price"
    text = (
        f"Sales of the {product} in {place} {move} from {before} to {now} units in Q{quarter}. "
        f"The office {goal} its target of {target} units. Returns were {back}, with {returns} units "
        f"sent back. Manager {manager} plans to {plan} next quarter."
    )
    return facts, text


def _football(rng: np.random.Generator) -> tuple[str, str]:
    home, away = pick_distinct(rng, PLACES, 2)
    star, day = pick(rng, SURNAMES), pick(rng, DAYS)
    a, b, minute = between(rng, 0, 5), between(rng, 0, 5), between(rng, 2, 90)
    crowd, cards = between(rng, 3, 80) * 1000, between(rng, 0, 7)
    facts = (
        f"home: {home}\naway: {away}\nday: {day}\nscore: {a}-{b}\nbest player: {star}\n"
        f"key minute: {minute}\ncrowd: {crowd}\ncards: {cards}\n"
    )
    verb = "beat" if a > b else "lost to" if a < b else "drew with"
    half = "first" if minute <= 45 else "second"
    tone = "calm" if cards <= 1 else "lively" if cards <= 4 else "rough"
    noise = "large" if crowd >= 40000 else "small" if crowd < 15000 else "good"
    text = (
        f"{home} {verb} {away} {a}-{b} at home on {day}. The best player was {star}, whose key moment "
        f"came in minute {minute} of a busy {half} half. It was a {tone} match with "
        f"{_plural(cards, 'card')} shown. A {noise} crowd of {crowd} people watched the game."
    )
    return facts, text


def _clinic(rng: np.random.Generator) -> tuple[str, str]:
    name, doctor, symptom = pick(rng, PEOPLE), pick(rng, SURNAMES), pick(rng, SYMPTOMS)
    age, days, pulse = between(rng, 5, 90), between(rng, 1, 14), between(rng, 48, 125)
    tenths, follow = between(rng, 362, 399), between(rng, 2, 21)
    temp = f"{tenths // 10}.{tenths % 10}"
    facts = (
        f"patient: {name}\nage: {age}\nsymptom: {symptom}\ndays: {days}\ntemperature: {temp}\n"
        f"pulse: {pulse}\ndoctor: {doctor}\nreturn in days: {follow}\n"
    )
    who = "child" if age < 18 else "senior" if age >= 65 else "grown-up"
    heat = "raised" if tenths >= 375 else "normal"
    beat = "fast" if pulse > 100 else "slow" if pulse < 60 else "regular"
    advice = "rest and plenty of water" if tenths >= 375 else "light exercise and sleep"
    text = (
        f"{name}, aged {age}, a {who}, came in with {symptom} lasting {_plural(days, 'day')}. "
        f"The temperature was {heat} at {temp} degrees and the pulse was {beat} at {pulse}. "
        f"Doctor {doctor} advised {advice}. The next visit is in {follow} days."
    )
    return facts, text


def _shipment(rng: np.random.Generator) -> tuple[str, str]:
    source, target = pick_distinct(rng, PLACES, 2)
    product, carrier = pick(rng, PRODUCTS), pick(rng, CARRIERS)
    day, month = between(rng, 1, 28), pick(rng, MONTHS)
    boxes, weight = between(rng, 2, 60), between(rng, 5, 900)
    delay, damaged = max(0, between(rng, -4, 6)), max(0, between(rng, -4, 5))
    facts = (
        f"carrier: {carrier}\nfrom: {source}\nto: {target}\ncontent: {product}\n"
        f"boxes: {boxes}\nweight kg: {weight}\nsent: {day} {month}\ndays late: {delay}\n"
        f"damaged: {damaged}\n"
    )
    load = "heavy" if weight >= 400 else "medium" if weight >= 100 else "light"
    when = "on time" if delay == 0 else f"{_plural(delay, 'day')} late"
    harm = "No boxes were damaged" if damaged == 0 else f"Damaged boxes: {damaged}"
    end = "the order is closed" if damaged + delay == 0 else "a claim was opened"
    text = (
        f"{carrier} moved {boxes} boxes from {source} to {target}, each holding one {product}. The "
        f"{load} load of {weight} kg was sent on {day} {month}. It arrived {when}. "
        f"{harm}, and {end} by the {target} office."
    )
    return facts, text


FAMILIES = {
    "Weather station": _weather,
    "Quarterly sales": _sales,
    "Football match": _football,
    "Clinic visit": _clinic,
    "Shipment": _shipment,
}


def make(rng: np.random.Generator) -> Example:
    """A list of facts with the report they determine."""
    title = pick(rng, list(FAMILIES))
    facts, text = FAMILIES[title](rng)
    return Example("report", f"{title} facts\n{facts}Report:\n", text)
