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
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A boolean in an object, by its key, and questions it answers."""

    name: str
    questions: tuple[str, ...]
    development: bool


def load_flags(folder=FOLDER):
    """Every flag, by file name and in the order of the file."""
    return [
        Flag(
            name=table["key"],
            questions=tuple(table["questions"]),
            development=table.get("development", False),
        )
        for path in text_files(folder)
        for table in _tables(path).get("flag", ())
    ]


def load_families(folder=FOLDER):
    """Every family, by file name and in the order of the file; errors name the file and table."""
    return [
        _family(type, table, str(path.relative_to(folder)))
        for path in text_files(folder)
        for key, type in TABLES.items()
        for table in _tables(path).get(key, ())
    ]


def text_files(folder=FOLDER):
    """The files of a text folder and of the folders inside it, in a fixed order."""
    return sorted(folder.rglob("*.toml"), key=lambda path: path.relative_to(folder).as_posix())


def text_hash(folder=FOLDER):
    """SHA-256 over names and contents of all files: what a checkpoint was trained on."""
    digest = hashlib.sha256()
    for path in text_files(folder):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


TABLES = {"family": "choice", "scale": "score", "set": "noul"}


def _tables(path):
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SystemExit(f"{path}: {error}") from None
    unknown = set(tables) - {*TABLES, "flag"}
    if unknown:
        raise SystemExit(f"{path}: tables {sorted(unknown)}, expected {[*TABLES, 'flag']}")
    return tables


def _family(type, table, file):
    try:
        return Family(
            type=type,
            name=table["name"],
            questions=tuple(table["questions"]),
            options=tuple(_OPTIONS[type](table)),
            development=table.get("development", False),
            file=file,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise SystemExit(f"{file}: {table.get('name')!r}: {error!r}") from None


def _choice_options(table):
    return [_option(name, option) for name, option in table["options"].items()]


def _levels(table):
    return [_option(level["is"][-1], level) for level in table["levels"]]


def _sides(table):
    return [
        _option(name, {"is": table[f"if_{name}"], "says": table[name]}) for name in ("no", "yes")
    ]


_OPTIONS = {"choice": _choice_options, "score": _levels, "noul": _sides}


def _option(name, table):
    return Option(name=name, wordings=tuple(table["is"]), sentences=tuple(table["says"]))
