"""Surface variety: how people and programs send the same sentence."""

OPENERS = (
    "Hello,", "Hi there,", "Good morning,", "Dear team,", "Hey,", "Quick question.", "Hi,",
    "Sorry to bother you.", "FYI:", "Note to self:", "Good evening.", "Hello again.",
)  # fmt: skip
CLOSERS = (
    "Thanks in advance.", "Best regards, Kim", "Cheers", "Thank you.", "Sent from my phone",
    "Have a nice day!", "Talk soon.", "Regards", "That is all.", "- Ruth", "thx", "Yours, Anton",
)  # fmt: skip
FIELDS = ("message", "text", "content", "body", "input", "comment", "note", "output")
NOISE = {
    "channel": ("email", "chat", "phone"),
    "language": ("en", "de"),
    "id": (17, 4711, 982, "a-31"),
    "name": ("Bo Lee", "Ana Ruiz", "M. Okafor"),
    "time": ("09:14", "2026-05-02", "18:40"),
    "remark": ("", None),
    **dict.fromkeys(("read", "flag", "seen", "starred", "verified", "active"), (True, False)),
}


def typed(rng, sentence):
    """A sentence as fingers leave it: sometimes lower case, sometimes two letters swapped."""
    if rng.random() < 0.2:
        sentence = sentence.lower().rstrip(".!?")
    if rng.random() < 0.12 and len(sentence) > 8:
        at = rng.randrange(1, len(sentence) - 2)
        sentence = sentence[:at] + sentence[at + 1] + sentence[at] + sentence[at + 2 :]
    return sentence


def state(rng, sentence, option):
    """The sentence alone, or greeted, followed by another of its option, or in an object."""
    parts, is_prose = [typed(rng, sentence)], sentence[-1] in ".!?"
    if rng.random() < 0.12:
        parts.append(rng.choice(option.sentences))
    if is_prose and rng.random() < 0.15:
        parts.insert(0, rng.choice(OPENERS))
    if is_prose and rng.random() < 0.15:
        parts.append(rng.choice(CLOSERS))
    text = " ".join(dict.fromkeys(parts))
    return with_noise(rng, [(rng.choice(FIELDS), text)]) if rng.random() < 0.25 else text


def with_noise(rng, fields):
    """An object of these fields and up to three that say nothing."""
    taken = {name for name, _ in fields}
    free = [name for name in NOISE if name not in taken]
    for name in rng.sample(free, rng.randint(0, 3)):
        fields.insert(rng.randint(0, len(fields)), (name, rng.choice(NOISE[name])))
    return dict(fields)
