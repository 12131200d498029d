"""The training text is whole, balanced and split by family; the shipped model names its text."""

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from models_mini.checkpoint import SHIPPED

TRAINING = Path(__file__).parent.parent / "training"


@pytest.fixture(scope="module")
def training():
    sys.path.insert(0, str(TRAINING))
    try:
        import families
    finally:
        sys.path.remove(str(TRAINING))
    return families


@pytest.fixture(scope="module")
def families(training):
    return training.load_families()


def said(family):
    """Every sentence of a family, with the index of its option."""
    return [(s, index) for index, option in enumerate(family.options) for s in option.sentences]


def test_shipped_model_names_the_text_it_was_trained_on():
    training = json.loads((SHIPPED / "config.json").read_text())["training"]
    assert len(training["text_sha256"]) == 64


def test_hash_covers_names_and_contents_of_files_in_folders(training, tmp_path):
    (tmp_path / "choices").mkdir()
    file = tmp_path / "choices" / "a.toml"
    file.write_text("")
    first = training.text_hash(tmp_path)
    file.write_text("# more")
    second = training.text_hash(tmp_path)
    file.rename(tmp_path / "choices" / "b.toml")
    assert len({first, second, training.text_hash(tmp_path)}) == 3


def test_misspelled_table_is_refused_with_its_file(training, tmp_path):
    (tmp_path / "a.toml").write_text("[[sets]]\nname = 'x'\n")
    with pytest.raises(SystemExit, match=r"a\.toml: tables \['sets'\]"):
        training.load_families(tmp_path)


def test_missing_field_is_refused_with_the_name(training, tmp_path):
    (tmp_path / "a.toml").write_text("[[set]]\nname = 'x'\nquestions = ['a?']\n")
    with pytest.raises(SystemExit, match=r"a\.toml: 'x': KeyError\('if_no'\)"):
        training.load_families(tmp_path)


def test_names_are_unique_within_a_type(families):
    counts = Counter((family.type, family.name) for family in families)
    assert [name for name, count in counts.items() if count > 1] == []


def test_every_family_has_questions_wordings_and_sentences(families):
    for family in families:
        where = f"{family.file}: {family.name}"
        assert len(set(family.questions)) == len(family.questions) >= 2, where
        assert 2 <= len(family.options) <= 10, where
        assert len({option.name for option in family.options}) == len(family.options), where
        for option in family.options:
            assert option.wordings, where
            assert len(option.sentences) >= 3, where


def test_texts_are_trimmed_and_not_empty(families):
    for family in families:
        for option in family.options:
            for text in (*family.questions, option.name, *option.wordings, *option.sentences):
                assert text == text.strip() != "", f"{family.file}: {family.name}: {text!r}"


def test_no_sentence_of_a_family_has_two_answers_or_stands_twice(families):
    for family in families:
        counts = Counter(text for text, _ in said(family))
        twice = [text for text, count in counts.items() if count > 1]
        assert not twice, f"{family.file}: {family.name}: {twice}"


def test_no_development_sentence_is_trained_on(families):
    sentences = {True: set(), False: set()}
    for family in families:
        sentences[family.development].update(text for text, _ in said(family))
    assert not sentences[True] & sentences[False]


def test_sides_of_a_yes_no_set_are_balanced(families):
    for family in families:
        if family.type == "noul":
            no, yes = (len(option.sentences) for option in family.options)
            assert max(no, yes) <= 1.5 * min(no, yes), f"{family.file}: {family.name}"


def test_length_does_not_give_the_side_away(families):
    longer = [
        sum(map(len, yes.sentences)) / len(yes.sentences)
        > sum(map(len, no.sentences)) / len(no.sentences)
        for family in families
        if family.type == "noul"
        for no, yes in [family.options]
    ]
    assert 0.35 < sum(longer) / len(longer) < 0.65


def test_every_type_has_families_for_training_and_development(families):
    counts = Counter((family.type, family.development) for family in families)
    assert set(counts) == {(t, d) for t in ("choice", "score", "noul") for d in (True, False)}
