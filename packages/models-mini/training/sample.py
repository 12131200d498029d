"""Training items made on the fly: the same sentence never meets the network twice in one form."""

from dataclasses import dataclass

import surface

from models_mini.text import (
    choice_texts,
    entry_text,
    noul_text,
    noul_texts,
    plain_text,
    score_texts,
)

# Shares of what is asked; "contrast" are yes/no sets whose sides speak of the same thing.
MIX = {"choice": 0.33, "score": 0.15, "contrast": 0.38, "derived": 0.11, "flag": 0.03}
STRANGERS = 0.15  # share of choices that get options of another family too
GENERIC = ("What fits best?", "Choose one.", "Classify this.", "Which one applies?")
ABOUT = ("Is this about {}?", "Does this belong to {}?", "Is {} the right label?", "Is it {}?")
STATED = ("Does this hold: {}?", "Is it so that {}?", "Can one say: {}?", "{}?", "Claim: {}")
GENERIC_LEVELS = {
    2: ("low", "high"),
    3: ("low", "medium", "high"),
    4: ("low", "medium", "high", "critical"),
    5: ("very low", "low", "medium", "high", "very high"),
}


@dataclass(frozen=True, slots=True)
class Item:
    """One question about one state, as the texts that the network reads.

    `group` says where it comes from: a key of `MIX`, or "off topic"; `asked` is a noul's question
    with both sides in one text; `entry` and `question` are what a client would send.
    """

    type: str
    group: str
    state: str
    candidates: tuple[str, ...]
    asked: str
    target: int
    family: str
    sentence: str
    entry: object
    question: dict


class Sampler:
    """Draws items from families and flags with one random generator."""

    def __init__(self, families, flags, rng, mix=None, strangers=STRANGERS):
        self.rng, self.flags, self.mix, self.strangers = rng, flags, mix or MIX, strangers
        self.by_type = {
            type: [family for family in families if family.type == type]
            for type in ("choice", "score", "noul")
        }

    def batch(self, size):
        """Items for one step; a contrast set brings a yes and a no asked in the same words."""
        items = []
        while len(items) < size:
            items.extend(self._draw())
        return items[:size]

    def _draw(self):
        kind = self.rng.choices(list(self.mix), list(self.mix.values()))[0]
        if kind == "flag":
            return [self.flag(self.rng.choice(self.flags))]
        if kind == "contrast":
            return self._contrast(self.rng.choice(self.by_type["noul"]))
        family = self.rng.choice(
            [*self.by_type["choice"], *self.by_type["score"]]
            if kind == "derived"
            else self.by_type[kind]
        )
        target, sentence = self._said(family)
        make = self.derived if kind == "derived" else self.item
        return [make(family, target, sentence)]

    def _said(self, family):
        target = self.rng.randrange(len(family.options))
        return target, self.rng.choice(family.options[target].sentences)

    def item(self, family, target, sentence):
        """An item for one sentence of one option, in a random form."""
        if family.type == "noul":
            return self._noul(family, target, sentence, self._asked(family))
        return {"choice": self._choice, "score": self._score}[family.type](family, target, sentence)

    def _choice(self, family, target, sentence):
        size = self.rng.randint(2, len(family.options))
        others = [index for index in range(len(family.options)) if index != target]
        chosen = [target, *self.rng.sample(others, size - 1)]
        options = [family.options[index] for index in chosen]
        if self.rng.random() < self.strangers:
            options += self._strangers(family, {option.name for option in options})
        order = self.rng.sample(range(len(options)), len(options))
        criteria = self._criteria([options[index] for index in order])
        asked, at = (self._question(family), criteria), order.index(0)
        entry = surface.state(self.rng, sentence, family.options[target])
        return _item("choice", "choice", entry, asked, at, family, sentence)

    def _strangers(self, family, taken):
        """Options of another family, as further wrong answers."""
        other = self.rng.choice([one for one in self.by_type["choice"] if one is not family])
        free = [option for option in other.options if option.name not in taken]
        return self.rng.sample(free, min(len(free), self.rng.randint(1, 10)))

    def _criteria(self, options):
        form = self.rng.choices(("names", "both", "descriptions"), (0.4, 0.4, 0.2))[0]
        if form == "names":
            return {option.name: None for option in options}
        described = [self.rng.choice(option.wordings) for option in options]
        names = [option.name for option in options]
        if form == "descriptions":
            names = [f"option {index + 1}" for index in range(len(options))]
        return dict(zip(names, described, strict=True))

    def _score(self, family, target, sentence):
        low = self.rng.randint(0, min(target, len(family.options) - 2))
        high = self.rng.randint(max(target, low + 1), len(family.options) - 1)
        if self.rng.random() < 0.5:
            low, high = 0, len(family.options) - 1
        wording = self.rng.randrange(min(len(option.wordings) for option in family.options))
        levels = [option.wordings[wording] for option in family.options[low : high + 1]]
        # Words that only say how much need a question that says of what.
        generic = len(levels) == len(family.options) and len(levels) in GENERIC_LEVELS
        question = self._question(family)
        if generic and question in family.questions and self.rng.random() < 0.3:
            levels = list(GENERIC_LEVELS[len(levels)])
        if self.rng.random() < 0.2:
            levels = [f"{index}: {level}" for index, level in enumerate(levels)]
        entry = surface.state(self.rng, sentence, family.options[target])
        return _item("score", "score", entry, (question, levels), target - low, family, sentence)

    def _contrast(self, family):
        draw = self.rng.random()
        pair = [(side, self.rng.choice(family.options[side].sentences)) for side in (0, 1)]
        if draw < 0.12:
            return [self._sides_as_choice(family, *one) for one in pair]
        if draw < 0.3:
            return [self._stated(family, *one) for one in pair]
        asked = self._asked(family)
        return [self._noul(family, *one, asked) for one in pair]

    def _asked(self, family):
        """Question and criteria of a yes/no set, in one of its forms."""
        no, yes = (self.rng.choice(side.wordings) for side in family.options)
        forms = ({}, {"true": yes}, {"false": no}, {"true": yes, "false": no})
        criteria = self.rng.choices(forms, (0.6, 0.12, 0.08, 0.2))[0]
        question = self.rng.choice(family.questions)
        if len(criteria) == 2 and self.rng.random() < 0.2:
            question = ""  # both sides described: the question may be missing
        return question, criteria

    def _noul(self, family, target, sentence, asked):
        option, group = family.options[target], "contrast"
        if target == 0 and self.rng.random() < 0.12:
            sentence, option = self._off_topic(family)
            group = "off topic"
        entry = surface.state(self.rng, sentence, option)
        return _item("noul", group, entry, asked, target, family, sentence)

    def _off_topic(self, family):
        other = self.rng.choice([one for one in self.by_type["noul"] if one is not family])
        option = self.rng.choice(other.options)
        return self.rng.choice(option.sentences), option

    def _stated(self, family, target, sentence):
        """One side's description as the question: yes where it describes the sentence."""
        side = self.rng.randrange(2)
        question = self.rng.choice(STATED).format(self.rng.choice(family.options[side].wordings))
        entry, is_yes = surface.state(self.rng, sentence, family.options[target]), side == target
        return _item("noul", "contrast", entry, (question, None), is_yes, family, sentence)

    def _sides_as_choice(self, family, target, sentence):
        sides = self.rng.sample((0, 1), 2)
        texts = [self.rng.choice(family.options[side].wordings) for side in sides]
        question = self.rng.choice((None, *GENERIC, *family.questions))
        entry = surface.state(self.rng, sentence, family.options[target])
        asked, at = (question, dict.fromkeys(texts)), sides.index(target)
        return _item("choice", "contrast", entry, asked, at, family, sentence)

    def derived(self, family, target, sentence):
        """An option or level asked for by name or description: yes for its own sentences only."""
        near = 1 if family.type == "choice" else 2  # neighbouring levels are too much alike
        others = [o for i, o in enumerate(family.options) if abs(i - target) >= near]
        is_yes = not others or self.rng.random() < 0.5
        asked = family.options[target] if is_yes else self.rng.choice(others)
        label = self.rng.choice((asked.name, *asked.wordings))
        question = self.rng.choice(ABOUT).format(label)
        if family.type == "score":
            question = f"{self.rng.choice(family.questions)} Is it: {label}?"
        entry = surface.state(self.rng, sentence, family.options[target])
        return _item("noul", "derived", entry, (question, None), is_yes, family, sentence)

    def flag(self, flag):
        """An object with some booleans, and a question that one of them answers."""
        others = [one.name for one in self.flags if one is not flag]
        keys = [flag.name, *self.rng.sample(others, min(len(others), self.rng.randint(0, 3)))]
        values = {key: self.rng.random() < 0.5 for key in self.rng.sample(keys, len(keys))}
        entry = surface.with_noise(self.rng, list(values.items()))
        asked = self.rng.choice(flag.questions), None
        return _item("noul", "flag", entry, asked, values[flag.name], flag, "")

    def _question(self, family):
        draw = self.rng.random()
        if draw < 0.1 and family.type == "choice":
            return None
        return self.rng.choice(GENERIC if draw < 0.2 else family.questions)


def _item(type, group, entry, asked, target, family, sentence):
    """`asked`: instructions and criteria, as a client sends them."""
    texts = {"choice": choice_texts, "score": score_texts, "noul": noul_texts}[type]
    return Item(
        type=type,
        group=group,
        state=(plain_text if type == "noul" else entry_text)(entry),
        candidates=(*texts(*asked),),
        asked=noul_text(*asked) if type == "noul" else "",
        target=int(target),
        family=family.name,
        sentence=sentence,
        entry=entry,
        question={"type": type, "instructions": asked[0], "criteria": asked[1] or None},
    )
