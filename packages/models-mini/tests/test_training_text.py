"""The training text is whole, and the shipped model was trained on it."""

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from models_mini.checkpoint import SHIPPED

TRAINING = Path(__file__).parent.parent / "training"


@pytest.fixture(scope="module")
def families():
    sys.path.insert(0, str(TRAINING))
    try:
        import families
    finally:
        sys.path.remove(str(TRAINING))
    return families


def test_shipped_model_was_trained_on_this_text(families):
    config = json.loads((SHIPPED / "config.json").read_text())
    assert config["training"]["text_sha256"] == families.text_hash()


def test_every_family_has_questions_wordings_and_sentences(families):
    for family in families.load_families():
        assert len(family.questions) >= 2, family.name
        assert 2 <= len(family.options) <= 10, family.name
        for option in family.options:
            assert option.wordings, family.name
            assert len(option.sentences) >= 3, family.name


def test_every_type_has_families_for_training_and_development(families):
    counts = Counter((family.type, family.development) for family in families.load_families())
    assert set(counts) == {(t, d) for t in ("choice", "score", "noul") for d in (True, False)}


def test_no_development_sentence_is_trained_on(families):
    sentences = {True: set(), False: set()}
    for family in families.load_families():
        for option in family.options:
            sentences[family.development].update(option.sentences)
    assert not sentences[True] & sentences[False]
