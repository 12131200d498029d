"""Templates, tokenizers and placeholders of a checkpoint."""

import json

import pytest
from torch import zeros

from models_qwen3_5.chat import (
    ChatTemplate,
    encode,
    load_tokenizer,
    place_images,
    single_tokens,
)
from models_qwen3_5.images import PreparedImage
from system1_core.errors import CheckpointError

USER = [{"role": "user", "content": "  hi  "}]


def template(source, tmp_path):
    (tmp_path / "chat_template.jinja").write_text(source)
    return ChatTemplate.load(tmp_path)


def test_the_checkpoints_template_is_rendered(base):
    rendered = ChatTemplate.load(base).render(USER, enable_thinking=False)
    expected = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    assert rendered == expected


def test_a_template_inside_the_tokenizer_config_is_found(tmp_path):
    config = {"chat_template": "{{ messages[0].content }}|{{ add_generation_prompt }}"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert ChatTemplate.load(tmp_path).render(USER) == "  hi  |True"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''.__class__.__base__ }}",
        "{% set _ = messages.append(1) %}",
        "{% include '/etc/passwd' %}",
        "{% for _ in range(1000000000) %}x{% endfor %}",
        "{{ raise_exception('no') }}",
        "{{ messages[0].content + 1 }}",
        "{% if %}",
    ],
    ids=["mro", "base", "mutation", "include", "endless", "refusal", "type", "syntax"],
)
def test_a_hostile_or_broken_template_is_an_error_that_names_it(source, tmp_path):
    with pytest.raises(CheckpointError, match=r"chat_template\.jinja.*fetch"):
        template(source, tmp_path).render(USER)


def test_a_folder_without_a_template_is_refused(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="serve a chat checkpoint"):
        ChatTemplate.load(tmp_path)


def test_tojson_keeps_other_scripts(tmp_path):
    assert (
        template("{{ messages[0].content | tojson }}", tmp_path).render([{"content": "é<>"}])
        == '"é<>"'
    )


def test_encoding_adds_nothing_and_finds_special_tokens(base, text_questions):
    tokenizer = load_tokenizer(base)
    token_ids = text_questions[0]["input_ids"]
    text = tokenizer.decode(token_ids, skip_special_tokens=False)
    assert encode(tokenizer, text) == token_ids


def test_a_saved_cut_or_padding_is_switched_off(base, tmp_path):
    saved = json.loads((base / "tokenizer.json").read_text())
    saved["truncation"] = {
        "direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0,
    }  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(saved))
    assert len(encode(load_tokenizer(tmp_path), "one two three four five six")) > 3


@pytest.mark.parametrize("text", [None, "{}", "not json"], ids=["missing", "empty", "garbage"])
def test_an_unsound_tokenizer_is_an_error_that_names_it(text, tmp_path):
    if text is not None:
        (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)


def pieces(tokenizer, text):
    return [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]


def test_the_files_split_rule_keeps_combining_marks(base):
    text = "हिन्दी ภาษาไทย it's 12 words\n\n  é"
    own = load_tokenizer(base)
    assert pieces(own, text) == pieces(load_tokenizer(base, "marks"), text)
    assert len(pieces(own, "हिन्दी")) == 1
    assert len(pieces(load_tokenizer(base, "no-marks"), "हिन्दी")) > 1


def test_both_split_rules_agree_on_latin_and_cjk(base):
    text = "It's 12 words, isn't it?\n\n  東京 2026 é—x"
    assert encode(load_tokenizer(base), text) == encode(load_tokenizer(base, "no-marks"), text)


def test_letters_are_single_tokens(base):
    tokenizer = load_tokenizer(base)
    assert single_tokens(tokenizer, "ABZ", base) == (32, 33, 57)
    with pytest.raises(CheckpointError, match="takes 2 tokens"):
        single_tokens(tokenizer, ["AB"], base)


def test_placeholders_grow_to_their_images_in_order():
    small, large = (PreparedImage(zeros(4 * n, 768).byte(), (2, 2 * n)) for n in (1, 3))
    token_ids, spans = place_images([5, 9, 6, 9], 9, [small, large])
    assert token_ids == [5, 9, 6, 9, 9, 9]
    assert [(span.start, span.stop) for span in spans] == [(1, 2), (3, 6)]


def test_a_placeholder_too_many_is_an_error():
    with pytest.raises(ValueError, match="2 image placeholders for 0 images"):
        place_images([9, 9], 9, [])
