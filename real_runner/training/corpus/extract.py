"""Information extraction: free text to a JSON object with fixed keys."""

from __future__ import annotations

import json

import numpy as np

from real_runner.training.corpus.names import DAYS, MONTHS, PEOPLE, PLACES, PRODUCTS, SURNAMES
from real_runner.training.corpus.types import Example, between, pick, pick_distinct

JOBS = (
    "teacher nurse baker pilot lawyer farmer painter driver chemist editor plumber singer "
    "waiter dentist architect engineer librarian gardener tailor judge"
).split()
HOBBIES = "chess tennis cycling fishing cooking dancing hiking painting reading running".split()
EVENTS = "concert lecture workshop fair auction festival meeting exhibition debate dinner".split()
ROOMS = "Main Hall|Garden Room|City Library|Town Museum|Old Theatre|River Centre".split("|")
COLORS = "red blue green black white grey brown yellow silver orange".split()
MATERIALS = "steel wood plastic glass cotton leather ceramic bamboo".split()
AIRLINES = "Skyline Aerona Polar Meridian Coastal Vela Sunjet Condora".split()
ISSUERS = "Harbor|Cedar|Summit|Lakeside|Union|Orchard|Beacon|Granite".split("|")

# family: phrasings that each mention every field of the object
PHRASINGS = {
    "person": (
        "{first} {last} is {age} years old and works as a {job} in {city}. {first} has worked for {years} years "
        "and enjoys {hobby}.",
        "Born in {city}, {first} {last} is {age} now. A {job} with {years} years of work, {first} "
        "spends weekends on {hobby}.",
        "Meet our {job}, {first} {last}, aged {age}, who loves {hobby}, lives in {city} and has "
        "{years} years of experience.",
    ),
    "event": (
        "A {event} will be held at the {venue} in {city} on {day}, {date} {month}. It starts at "
        "{hour}:00 and tickets cost {price} dollars.",
        "Join us in {city} for a {event}! Doors of the {venue} open at {hour}:00 on {day}, {date} "
        "{month}. Entry is {price} dollars.",
        "For {price} dollars you can attend the {event} on {day}, {date} {month}, at {hour}:00. The "
        "place is the {venue}, {city}.",
    ),
    "product": (
        "This {color} {product} is made of {material} in {city}. It weighs {weight} grams, costs "
        "{price} dollars, and {stock} are in stock.",
        "We have {stock} of the {city} {product} left, in {color} {material}, at {price} dollars and "
        "{weight} grams each.",
        "New from {city}: a {material} {product} in {color}. Price {price} dollars, weight {weight} "
        "grams, {stock} available.",
    ),
    "flight": (
        "{airline} flight {number} leaves {origin} for {city} on {day} at {hour}:{minute} from gate "
        "{gate}, carrying {seats} passengers.",
        "On {day} at {hour}:{minute}, {seats} passengers fly with {airline} from {origin} to {city}. "
        "Flight {number} boards at gate {gate}.",
        "Please go to gate {gate} for flight {number} to {city}. This {airline} service from "
        "{origin} departs {day} {hour}:{minute} with {seats} seats sold.",
    ),
    "job": (
        "{company} is hiring a {job} in {city}. The pay is {price} dollars a day for {hours} hours a "
        "week, starting in {month}. Ask for {first} {last}.",
        "Wanted in {city} from {month}: a {job}, {hours} hours weekly, {price} dollars daily. Write "
        "to {first} {last} at {company}.",
        "Contact {first} {last} of {company} about work as a {job}: {price} dollars per day, {hours} "
        "hours per week, {city}, from {month}.",
    ),
    "invoice": (
        "{company} billed {first} {last} {price} dollars for {stock} units of {product}. Invoice "
        "{number} is due on {date} {month} in {city}.",
        "Invoice {number} from {company}, {city}: {stock} x {product}, total {price} dollars, payable "
        "by {first} {last} before {date} {month}.",
        "By {date} {month}, {first} {last} of {city} must pay {price} dollars to {company} for "
        "{stock} of the {product}, see invoice {number}.",
    ),
}
# family: (output key, source of its value), in output order
KEYS = {
    "person": ("name age job city years hobby", "name age job city years hobby"),
    "event": ("event venue city weekday date start price", "event venue city day when hour price"),
    "product": (
        "item color material origin grams price stock",
        "product color material city weight price stock",
    ),
    "flight": (
        "airline flight from to weekday time gate seats",
        "airline number origin city day time gate seats",
    ),
    "job": ("role company city pay hours start contact", "job company city price hours month name"),
    "invoice": (
        "invoice seller buyer city item units total due",
        "number company name city product stock price when",
    ),
}


def _fields(rng: np.random.Generator) -> dict[str, object]:
    """Draw a value for every field that any family uses."""
    city, origin = pick_distinct(rng, PLACES, 2)
    fields = {
        "first": pick(rng, PEOPLE),
        "last": pick(rng, SURNAMES),
        "job": pick(rng, JOBS),
        "hobby": pick(rng, HOBBIES),
        "event": pick(rng, EVENTS),
        "venue": pick(rng, ROOMS),
        "color": pick(rng, COLORS),
        "material": pick(rng, MATERIALS),
        "day": pick(rng, DAYS),
        "product": pick(rng, PRODUCTS),
        "airline": pick(rng, AIRLINES),
        "month": pick(rng, MONTHS),
        "company": f"{pick(rng, ISSUERS)} {pick(rng, ('Group', 'Works', 'Trading'))}",
        "city": city,
        "origin": origin,
        "years": between(rng, 1, 20),
        "age": between(rng, 41, 79),
        "date": between(rng, 1, 28),
        "hour": between(rng, 10, 22),
        "minute": between(rng, 10, 59),
        "price": between(rng, 5, 950),
        "weight": between(rng, 100, 999),
        "stock": between(rng, 2, 99),
        "number": between(rng, 100, 999),
        "seats": between(rng, 40, 320),
        "hours": between(rng, 8, 40),
        "gate": f"{pick(rng, 'ABCDEF')}{between(rng, 1, 40)}",
    }
    fields["name"] = f"{fields['first']} {fields['last']}"
    fields["when"] = f"{fields['date']} {fields['month']}"
    fields["time"] = f"{fields['hour']}:{fields['minute']}"
    return fields


def make(rng: np.random.Generator) -> Example:
    """A description with its JSON object."""
    family = pick(rng, list(PHRASINGS))
    fields = _fields(rng)
    text = pick(rng, PHRASINGS[family]).format(**fields)
    for vowel in "aeiou":
        text = text.replace(f" a {vowel}", f" an {vowel}").replace(f"A {vowel}", f"An {vowel}")
    keys, sources = (names.split() for names in KEYS[family])
    record = {"type": family}
    record.update((key, fields[source]) for key, source in zip(keys, sources, strict=True))
    return Example("extract", f"Extract the {family}: {text}\nJSON:\n", json.dumps(record))
