"""The training text: choice families, scales, yes/no sets and flags, read from `text/`."""

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option, level or side: its name, wordings of it, and states for which it is right."""

    name: str
    wordings: tuple[str, ...]
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One kind of decision; a noul's options are "no" and "yes"."""

    type: str
    name: str
    questions: tuple[str, ...]
    options: tuple[Option, ...]
    development: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A boolean in an object, by its key, and questions it answers."""

    name: str
    questions: tuple[str, ...]
    development: bool


def load_flags():
    """Every flag, in the order of the file."""
    return [
        Flag(
            name=table["key"],
            questions=tuple(table["questions"]),
            development=table.get("development", False),
        )
        for table in _read("flags.toml")["flag"]
    ]


def load_families():
    """Every family, in the order of the files."""
    return [
        *(_choice(table) for table in _read("choices.toml")["family"]),
        *(_score(table) for table in _read("scales.toml")["scale"]),
        *(_noul(table) for table in _read("nouls.toml")["set"]),
    ]


def text_hash():
    """SHA-256 over the text files, by name order: what a checkpoint was trained on."""
    digest = hashlib.sha256()
    for path in sorted(FOLDER.glob("*.toml")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _read(name):
    return tomllib.loads((FOLDER / name).read_text(encoding="utf-8"))


def _choice(table):
    return _family("choice", table, [_option(n, o) for n, o in table["options"].items()])


def _score(table):
    return _family("score", table, [_option(o["is"][-1], o) for o in table["levels"]])


def _noul(table):
    sides = [
        _option(name, {"is": table[f"if_{name}"], "says": table[name]}) for name in ("no", "yes")
    ]
    return _family("noul", table, sides)


def _option(name, table):
    return Option(name=name, wordings=tuple(table["is"]), sentences=tuple(table["says"]))


def _family(type, table, options):
    return Family(
        type=type,
        name=table["name"],
        questions=tuple(table["questions"]),
        options=tuple(options),
        development=table.get("development", False),
    )
