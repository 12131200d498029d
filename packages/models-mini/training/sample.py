"""Training items made on the fly: the same sentence never meets the network twice in one form."""

from dataclasses import dataclass

from models_mini.text import choice_texts, entry_text, noul_texts, plain_text, score_texts

SHARES = {"choice": 0.45, "score": 0.20, "noul": 0.35}
GENERIC = ("What fits best?", "Choose one.", "Classify this.", "Which one applies?")
OPENERS = ("Hello,", "Hi there,", "Good morning,", "Dear team,", "Hey,")
CLOSERS = ("Thanks in advance.", "Best regards, Kim", "Cheers", "Thank you.", "Sent from my phone")
ABOUT = ("Is this about {}?", "Does this belong to {}?", "Is {} the right label?", "Is it {}?")
FIELDS = ("message", "text", "content", "body")
NOISE = {
    "channel": ("email", "chat", "phone"),
    "language": ("en", "de"),
    "id": (17, 4711, 982),
    "name": ("Bo Lee", "Ana Ruiz", "M. Okafor"),
    "note": ("", None),
    **dict.fromkeys(("read", "flag", "seen", "starred", "verified", "active"), (True, False)),
}
GENERIC_LEVELS = {
    2: ("low", "high"),
    3: ("low", "medium", "high"),
    4: ("low", "medium", "high", "critical"),
    5: ("very low", "low", "medium", "high", "very high"),
}


@dataclass(frozen=True, slots=True)
class Item:
    """One question about one state, as the texts that the network reads."""

    type: str
    state: str
    candidates: tuple[str, ...]
    target: int
    family: str
    sentence: str


class Sampler:
    """Draws items from families and flags with one random generator."""

    def __init__(self, families, flags, rng):
        self.rng, self.flags = rng, flags
        self.by_type = {
            type: [family for family in families if family.type == type] for type in SHARES
        }

    def draw(self):
        """One item of a random family and sentence."""
        type = self.rng.choices(list(SHARES), list(SHARES.values()))[0]
        form = self.rng.random() if type == "noul" else 0
        if form > 0.85:
            return self.flag(self.rng.choice(self.flags))
        derived = form > 0.5
        family = self.rng.choice(self.by_type["choice" if derived else type])
        target = self.rng.randrange(len(family.options))
        sentence = self.rng.choice(family.options[target].sentences)
        if derived:
            return self.derived_noul(family, target, sentence)
        return self.item(family, target, sentence)

    def item(self, family, target, sentence):
        """An item for one sentence of one option, in a random form."""
        return getattr(self, f"_{family.type}")(family, target, sentence)

    def _choice(self, family, target, sentence):
        size = self.rng.randint(2, len(family.options))
        others = [index for index in range(len(family.options)) if index != target]
        chosen = [target, *self.rng.sample(others, size - 1)]
        options = [family.options[index] for index in chosen]
        if self.rng.random() < 0.15:
            options += self._strangers(family, {option.name for option in options})
        order = self.rng.sample(range(len(options)), len(options))
        criteria = self._criteria([options[index] for index in order])
        state = entry_text(self._state(sentence, family.options[target]))
        texts = choice_texts(self._question(family), criteria)
        return self._made("choice", state, texts, order.index(0), family, sentence)

    def _strangers(self, family, taken):
        """Options of another family, as further wrong answers."""
        other = self.rng.choice([one for one in self.by_type["choice"] if one is not family])
        free = [option for option in other.options if option.name not in taken]
        return self.rng.sample(free, min(len(free), self.rng.randint(1, 4)))

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
        wording = self.rng.randrange(min(len(option.wordings) for option in family.options))
        levels = [option.wordings[wording] for option in family.options[low : high + 1]]
        if len(levels) == len(family.options) and self.rng.random() < 0.4:
            levels = list(GENERIC_LEVELS[len(levels)])
        if self.rng.random() < 0.2:
            levels = [f"{index}: {level}" for index, level in enumerate(levels)]
        state = entry_text(self._state(sentence, family.options[target]))
        texts = score_texts(self._question(family), levels)
        return self._made("score", state, texts, target - low, family, sentence)

    def _noul(self, family, target, sentence):
        option = family.options[target]
        if target == 0 and self.rng.random() < 0.2:
            sentence, option = self._off_topic(family)
        no, yes = (self.rng.choice(side.wordings) for side in family.options)
        forms = ({}, {"true": yes}, {"false": no}, {"true": yes, "false": no})
        criteria = self.rng.choices(forms, (0.5, 0.15, 0.1, 0.25))[0]
        question = self.rng.choice(family.questions)
        if len(criteria) == 2 and self.rng.random() < 0.2:
            question = ""  # both sides described: the question may be missing
        state = plain_text(self._state(sentence, option))
        return self._made("noul", state, noul_texts(question, criteria), target, family, sentence)

    def _off_topic(self, family):
        other = self.rng.choice([one for one in self.by_type["noul"] if one is not family])
        option = self.rng.choice(other.options)
        return self.rng.choice(option.sentences), option

    def derived_noul(self, family, target, sentence):
        """A choice option asked for by name or description: yes for its own sentences only."""
        others = [option for index, option in enumerate(family.options) if index != target]
        is_yes = self.rng.random() < 0.5
        asked = family.options[target] if is_yes else self.rng.choice(others)
        label = self.rng.choice((asked.name, *asked.wordings))
        question = self.rng.choice(ABOUT).format(label)
        state = plain_text(self._state(sentence, family.options[target]))
        return self._made("noul", state, noul_texts(question, None), int(is_yes), family, sentence)

    def flag(self, flag):
        """An object with some booleans, and a question that one of them answers."""
        others = [one.name for one in self.flags if one is not flag]
        keys = [flag.name, *self.rng.sample(others, min(len(others), self.rng.randint(0, 3)))]
        values = {key: self.rng.random() < 0.5 for key in self.rng.sample(keys, len(keys))}
        state = plain_text(self._with_noise(list(values.items())))
        question = noul_texts(self.rng.choice(flag.questions), None)
        return self._made("noul", state, question, int(values[flag.name]), flag, "")

    def _question(self, family):
        draw = self.rng.random()
        if draw < 0.1:
            return None
        return self.rng.choice(GENERIC if draw < 0.2 else family.questions)

    def _state(self, sentence, option):
        """The sentence as people and programs send it."""
        parts = [self._typed(sentence)]
        if self.rng.random() < 0.15:
            parts.append(self.rng.choice(option.sentences))
        if self.rng.random() < 0.2:
            parts.insert(0, self.rng.choice(OPENERS))
        if self.rng.random() < 0.2:
            parts.append(self.rng.choice(CLOSERS))
        text = " ".join(dict.fromkeys(parts))
        return self._wrapped(text) if self.rng.random() < 0.3 else text

    def _typed(self, sentence):
        if self.rng.random() < 0.2:
            sentence = sentence.lower().rstrip(".!?")
        if self.rng.random() < 0.15 and len(sentence) > 8:
            at = self.rng.randrange(1, len(sentence) - 2)
            sentence = sentence[:at] + sentence[at + 1] + sentence[at] + sentence[at + 2 :]
        return sentence

    def _wrapped(self, text):
        return self._with_noise([(self.rng.choice(FIELDS), text)])

    def _with_noise(self, fields):
        """An object of these fields and up to three that say nothing."""
        for name in self.rng.sample(list(NOISE), self.rng.randint(0, 3)):
            fields.insert(self.rng.randint(0, len(fields)), (name, self.rng.choice(NOISE[name])))
        return dict(fields)

    def _made(self, type, state, candidates, target, family, sentence):
        return Item(type, state, tuple(candidates), target, family.name, sentence)
