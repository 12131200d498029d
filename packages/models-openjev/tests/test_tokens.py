"""Parts of candidates have the tokens of the whole, and the rule that splits words is chosen."""

import json
import random
import shutil

import pytest
from conftest import FIXTURES, load_of, question

from models_openjev.checkpoint import open_source
from models_openjev.identity import OPEN_JEV_9B
from models_openjev.text import candidate_texts, head_text, question_text, render
from models_openjev.tokens import Tokens, open_tokenizer, split_rule
from system1_core.errors import CheckpointError

MARKS = "क्षत्रिय ที่นี่"
TEXTS = ("", " ", "\n", "a\n\n", "a \t", "\r\n", "é", "<|im_end|>", "<think>\n", "1", "'s", MARKS)


def source_of(folder=FIXTURES / "checkpoint", base=FIXTURES / "base"):
    return open_source(load_of(folder, base), OPEN_JEV_9B)


@pytest.fixture
def tokens():
    source = source_of()
    return Tokens(open_tokenizer(source, "auto"), source.prefix, source.suffix)


@pytest.mark.parametrize("text", TEXTS)
def test_parts_together_have_the_tokens_of_the_whole(tokens, text):
    for each in (
        question("choice", instructions=text, criteria={text: text, "x": None}),
        question("score", instructions={"a": text}, criteria=[text, [text]]),
        question("noul", instructions=text, criteria={"true": text, "false": text}),
    ):
        start = tokens.head(text) + tokens.question(each)
        assert [start + ending for ending in tokens.candidates(each)] == tokens.whole(text, each)


def test_every_candidate_ends_in_the_same_tokens(tokens):
    each = question("choice", criteria={"a": None, "b": "x"})
    (first, second), (noul,) = tokens.candidates(each), tokens.candidates(question())
    assert first[-9:] == second[-9:] == noul[-9:]


def test_a_tokenizer_that_joins_words_over_a_line_is_refused(tmp_path):
    base = shutil.copytree(FIXTURES / "base", tmp_path / "base")
    values = json.loads((base / "tokenizer.json").read_text())
    values["normalizer"] = {
        "type": "Replace",
        "pattern": {"String": "\n\nQuestion"},
        "content": "Q",
    }
    (base / "tokenizer.json").write_text(json.dumps(values))
    source = source_of(base=base)
    bad = Tokens(open_tokenizer(source, "auto"), source.prefix, source.suffix)
    with pytest.raises(CheckpointError, match="joins words over the end of a line"):
        bad.check(base / "tokenizer.json")


def test_a_tokenizer_of_more_tokens_than_rows_is_refused(tmp_path):
    base = shutil.copytree(FIXTURES / "base", tmp_path / "base")
    values = json.loads((base / "config.json").read_text())
    values["text_config"]["vocab_size"] = 440
    (base / "config.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match="445 tokens, the model has 440 rows"):
        open_tokenizer(source_of(base=base), "auto")


@pytest.mark.parametrize(
    ("tokenizer_class", "named", "rule"),
    [
        ("Qwen2Tokenizer", "auto", "no-marks"),
        ("Qwen3_5Tokenizer", "auto", None),
        ("Qwen2Tokenizer", "file", None),
        ("Qwen2Tokenizer", "marks", "marks"),
        ("Qwen3_5Tokenizer", "no-marks", "no-marks"),
    ],
)
def test_the_rule_of_the_class_that_the_original_loads_is_used(
    tmp_path, tokenizer_class, named, rule
):
    base = shutil.copytree(FIXTURES / "base", tmp_path / "base")
    (base / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": tokenizer_class}))
    assert split_rule(source_of(base=base), named) == rule


def test_a_merged_export_keeps_the_rule_in_its_file(tmp_path):
    folder = shutil.copytree(FIXTURES / "merged", tmp_path / "merged")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "Qwen2Tokenizer"}')
    assert split_rule(source_of(folder, None), "auto") is None


def test_the_rules_differ_where_marks_are_letters():
    source = source_of()
    words = [
        open_tokenizer(source, rule).pre_tokenizer.pre_tokenize_str(MARKS)
        for rule in ("marks", "no-marks", "file")
    ]
    assert words[0] != words[1]
    assert words[0] == words[2]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ({"b": 1.0, "A": [1e16, -0.0, 1e-5]}, '{"A": [1e+16, -0.0, 1e-05], "b": 1.0}'),
        ([None, True, "ü"], '[null, true, "ü"]'),
        ({"é": 1, "z": 2}, '{"z": 2, "é": 1}'),
        ({}, "{}"),
    ],
)
def test_values_are_rendered_as_the_original_does(value, text):
    assert render(value) == text


def test_braces_in_texts_stay_as_they_are():
    each = question("choice", instructions="{question}", criteria={"{answer}": "{0}"})
    assert "{state}" in head_text("{state}")
    assert "Question: {question}\n" in question_text(each)
    assert "Proposed answer: {answer}: {0}\n" in candidate_texts(each)[0]


def test_parts_have_the_tokens_of_the_whole_whatever_the_texts(tokens):
    draw = random.Random(0)
    odd = [
        *map(chr, range(128)),
        *"\x85\xa0\u2028\u0301é字ก็🙂",
        "\n\n",
        "<|im_end|>",
        MARKS,
        " the",
    ]
    for _ in range(100):
        state, text, key = ("".join(draw.choices(odd, k=draw.randint(0, 12))) for _ in range(3))
        each = question("choice", instructions=text, criteria={key: state, f"{key}x": None})
        start = tokens.head(state) + tokens.question(each)
        found = [start + ending for ending in tokens.candidates(each)]
        assert found == tokens.whole(state, each), repr((state, text, key))
