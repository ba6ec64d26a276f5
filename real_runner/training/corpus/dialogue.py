"""Customer-support conversations determined by a short record."""

from __future__ import annotations

import numpy as np

from real_runner.training.corpus.names import PEOPLE, PRODUCTS_BY_CLASS
from real_runner.training.corpus.types import Example, between, pick

# issue: (what the customer says, what the agent asks, what the customer replies)
ISSUES = {
    "late": ("has not arrived yet", "When was it due", "It was due {days} days ago."),
    "damaged": ("arrived damaged", "Was the box damaged too", "Yes, I opened it {days} days ago."),
    "wrong item": ("is not the one I ordered", "What does the label say", "It shows code {days}."),
    "missing part": ("came with a part missing", "Which part is missing", "Part number {days}."),
    "stopped working": ("stopped working", "How long did it work", "Only for {days} days."),
    "double charge": ("was charged twice", "When did you pay", "I paid {days} days ago."),
    "return": ("is not what I need", "Is it unused", "Yes, I have had it for {days} days."),
}
# resolution: what the agent offers; {product} and {amount} are filled in
RESOLUTIONS = {
    "refund": "I have sent a refund of {amount} dollars to your card",
    "replace": "I will send you a new {product} worth {amount} dollars today",
    "credit": "I have added {amount} dollars of credit to your account",
    "discount": "I can take {amount} dollars off your next order",
    "inspect": "please send it in for a check, which is free up to {amount} dollars",
}
# product class: a closing remark by the agent
CARE = {
    "kitchen": "Please keep the receipt for the kitchen warranty.",
    "electronics": "Please back up your data and keep the serial number.",
    "clothing": "Please leave the tags on for now.",
    "furniture": "Our drivers will call before they visit.",
}
OPENING = {
    "polite": "Hello, my {product} from order {order} {problem}. Could you help me?",
    "upset": "This is not good enough! My {product} from order {order} {problem}!",
    "brief": "Order {order}: {product} {problem}.",
}
SORRY = {
    "polite": "Thank you for writing, {name}. {question}?",
    "upset": "I am very sorry about this, {name}. {question}?",
    "brief": "Hi {name}. {question}?",
}
ANSWER = {
    "polite": "{reply} Thank you for asking.",
    "upset": "{reply} I am tired of waiting.",
    "brief": "{reply}",
}
CLOSING = {
    "polite": "That is very kind, thank you.",
    "upset": "Fine, but I expect better next time.",
    "brief": "OK, thanks.",
}


def make(rng: np.random.Generator) -> Example:
    """A support record with its conversation."""
    name, tone = pick(rng, PEOPLE), pick(rng, list(OPENING))
    kind = pick(rng, list(PRODUCTS_BY_CLASS))
    product, issue = pick(rng, PRODUCTS_BY_CLASS[kind]), pick(rng, list(ISSUES))
    resolution = pick(rng, list(RESOLUTIONS))
    order, days, amount = between(rng, 1000, 9999), between(rng, 2, 30), between(rng, 5, 400)
    problem, question, reply = ISSUES[issue]
    words = {"name": name, "product": product, "order": order, "problem": problem}
    words |= {"question": question, "reply": reply.format(days=days)}
    offer = RESOLUTIONS[resolution].format(product=product, amount=amount)
    turns = [
        ("Customer", OPENING[tone].format(**words)),
        ("Agent", SORRY[tone].format(**words)),
        ("Customer", ANSWER[tone].format(**words)),
        ("Agent", f"I see. For order {order}, {offer}. {CARE[kind]}"),
        ("Customer", CLOSING[tone]),
    ]
    if tone != "brief":
        turns.append(("Agent", f"You are welcome, {name}. Have a good day."))
    prompt = (
        f"Support record\ncustomer: {name}\nproduct: {product}\nclass: {kind}\norder: {order}\n"
        f"issue: {issue}\ndetail: {days}\nresolution: {resolution}\namount: {amount}\n"
        f"tone: {tone}\nDialogue:\n"
    )
    return Example("dialogue", prompt, "\n".join(f"{who}: {text}" for who, text in turns))
