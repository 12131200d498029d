"""Options: each refuses what it cannot use, with the remedy."""

import pytest
from conftest import family

from models_clm.options import ClmOptions
from system1_core.errors import ConfigError

PARSERS = {option.name: option.parse for option in family().options}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        (
            "embeddings_url",
            "https://host/prefix/v1/embeddings",
            "https://host/prefix/v1/embeddings",
        ),
        ("truncate_tokens", "512", 512),
        ("truncate_tokens", "none", 0),
        ("cache_texts", "0", 0),
        ("embeddings_timeout_s", "2.5", 2.5),
        ("default", " clm_tiny ", "clm_tiny"),
    ],
)
def test_option_is_parsed(name, text, value):
    assert PARSERS[name](text) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("embeddings_url", "host:8090", "use for instance http://127.0.0.1:8090/v1/embeddings"),
        ("embeddings_url", "file:///etc/passwd", "use for instance"),
        ("embeddings_url", "http://user:secret@host/", "clm.embeddings_key_file"),
        ("embeddings_model", " ", "give one"),
        ("embeddings_key", "two words", "without spaces"),
        ("embeddings_timeout_s", "0", "above 0"),
        ("embeddings_timeout_s", "nan", "above 0"),
        ("embeddings_timeout_s", "soon", "above 0"),
        ("encoder", "/no/such/folder", "there is no folder"),
        ("truncate_tokens", "-1", "0 for no limit"),
        ("truncate_tokens", "1.5", "0 for no limit"),
        ("cache_texts", "many", "0 for no cache"),
        ("default", "", "give one"),
    ],
)
def test_option_is_refused_with_the_remedy(name, text, message):
    with pytest.raises(ValueError, match=message) as caught:
        PARSERS[name](text)
    assert "secret" not in str(caught.value)


def test_server_and_encoder_exclude_each_other(tmp_path):
    with pytest.raises(ConfigError, match=r"leave the other out"):
        ClmOptions(encoder=tmp_path, embeddings_url="http://host")


def test_key_and_key_file_exclude_each_other(tmp_path):
    with pytest.raises(ConfigError, match="give one of them"):
        ClmOptions(embeddings_key="k", embeddings_key_file=tmp_path)


@pytest.mark.parametrize("content", ["", "one two", "one\ntwo"])
def test_key_file_holds_one_key(tmp_path, content):
    file = tmp_path / "key"
    file.write_text(content)
    with pytest.raises(ConfigError, match="expected one key and nothing else"):
        ClmOptions(embeddings_key_file=file).read_key()


def test_missing_key_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="embeddings_key_file=.*No such file"):
        ClmOptions(embeddings_key_file=tmp_path / "none").read_key()


def test_defaults_are_the_originals():
    options = ClmOptions.of({option.name: option.default for option in family().options})
    assert options.url == "http://127.0.0.1:8090/v1/embeddings"
    assert (options.embeddings_model, options.truncate_tokens) == ("qwen3-8b", 2048)
    assert (options.cache_texts, options.embeddings_timeout_s) == (200_000, 300)
