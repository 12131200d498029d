"""The client of the embedding server: what it sends, what it takes, what it refuses."""

import asyncio
import base64
import gc
import struct
import threading

import httpx
import numpy as np
import pytest
from stub_server import count_tokens, stub_vector

from models_clm.embedding_server import EmbeddingServer
from models_clm.options import ClmOptions
from system1_core import DependencyFailed


def embed(stub, *texts, **options):
    return calls(stub.url, texts, **options)[0]


def calls(url, *batches, between=lambda: None, **options):
    """The embeddings of several calls of one client."""

    async def run():
        server = EmbeddingServer(ClmOptions(embeddings_url=url, **options))
        try:
            found = []
            for batch in batches:
                found.append(await server.embed(batch))
                between()
            return found
        finally:
            await server.aclose()

    return asyncio.run(run())


def row(index, *values):
    return {"index": index, "embedding": list(values)}


def test_call_has_the_fields_of_the_contract(stub):
    embed(stub, "a", "b")
    assert stub.calls == [
        {
            "model": "qwen3-8b",
            "input": ["a", "b"],
            "encoding_format": "base64",
            "truncate_prompt_tokens": 2048,
            "truncation_side": "left",
        }
    ]


def test_no_limit_sends_neither_limit_nor_side(stub):
    embed(stub, "a", truncate_tokens=0, embeddings_model="other")
    assert stub.calls == [{"model": "other", "input": ["a"], "encoding_format": "base64"}]


@pytest.mark.parametrize("key", ["k1", None])
def test_key_is_sent_as_bearer_when_there_is_one(stub, key):
    embed(stub, "a", embeddings_key=key)
    assert stub.headers[0].get("Authorization") == (None if key is None else f"Bearer {key}")


def test_key_may_stand_in_a_file(stub, tmp_path):
    file = tmp_path / "key"
    file.write_text("k2\n")
    embed(stub, "a", embeddings_key_file=file)
    assert stub.headers[0]["Authorization"] == "Bearer k2"


@pytest.mark.parametrize("rows_as_lists", [False, True], ids=["base64", "lists"])
@pytest.mark.parametrize("backwards", [False, True], ids=["in order", "backwards"])
def test_rows_are_placed_by_index_in_either_form(stub, rows_as_lists, backwards):
    stub.rows_as_lists, stub.backwards = rows_as_lists, backwards
    found = embed(stub, "a", "b", "c")
    for embedded, text in zip(found, "abc", strict=True):
        assert embedded.vector == pytest.approx(stub_vector(text), abs=1e-7)


def test_rows_are_normalised_on_receipt(stub):
    stub.answer = {"data": [row(0, 3, 4)]}
    (found,) = embed(stub, "a")
    assert found.vector == pytest.approx(np.array([0.6, 0.8]))
    assert found.vector.dtype == np.float32


def test_row_of_zeros_stays_zero(stub):
    stub.answer = {"data": [row(0, 0, 0)]}
    (found,) = embed(stub, "a")
    assert found.vector.tolist() == [0, 0]


def test_tokens_of_a_call_are_counted_once(stub):
    found = embed(stub, "a" * 40, "b" * 40)
    assert sum(embedded.num_tokens for embedded in found) == count_tokens(["a" * 40, "b" * 40])


def test_missing_usage_counts_nothing(stub):
    stub.answer = {"data": [row(0, 1)]}
    assert (embed(stub, "a"))[0].num_tokens == 0


def packed(*values):
    return base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {},
        {"data": None},
        {"data": []},
        {"data": [row(0, 1)]},
        {"data": [row(0, 1), row(0, 1)]},
        {"data": [row(0, 1), row(2, 1)]},
        {"data": [row(0, 1), row(-1, 1)]},
        {"data": [row(0, 1), row(True, 1)]},
        {"data": [row(0, 1), row(1, 1), row(2, 1)]},
        {"data": [row(0, 1), row(1, 1, 2)]},
        {"data": [row(0), row(1)]},
        {"data": [row(0, "x"), row(1, 1)]},
        {"data": [row(0, [1]), row(1, [1])]},
        {"data": [row(0, None), row(1, 1)]},
        {"data": [row(0, float("inf")), row(1, 1)]},
        {"data": [{"index": 0, "embedding": "%"}, row(1, 1)]},
        {"data": [{"index": 0, "embedding": "QQ=="}, row(1, 1)]},
        {"data": [{"index": 0, "embedding": packed(float("nan"))}, row(1, 1)]},
        {"data": [{"index": 0, "embedding": packed(float("inf"))}, row(1, 1)]},
        {"data": [{"index": 0}, row(1, 1)]},
        {"data": [row(0, 1), row(1, 1)], "usage": {"prompt_tokens": -1}},
        {"data": [row(0, 1), row(1, 1)], "usage": {"prompt_tokens": "7"}},
        {"data": [row(0, 1), row(1, 1)], "usage": [7]},
    ],
    ids=str,
)
def test_anything_but_one_embedding_each_is_a_dependency_error(stub, answer):
    stub.answer = answer
    with pytest.raises(DependencyFailed, match="not an embeddings response"):
        embed(stub, "a", "b")


def test_error_status_is_a_dependency_error_with_code_and_body(stub):
    with pytest.raises(DependencyFailed, match="embedder error 500: no such luck"):
        embed(stub, "EMBEDFAIL")


def test_body_that_is_not_json_is_a_dependency_error(stub):
    stub.status = 204
    with pytest.raises(DependencyFailed, match="embedder error 204"):
        embed(stub, "a")


def test_dead_server_is_a_dependency_error_with_its_address():
    url = "http://127.0.0.1:1/v1/embeddings"
    with pytest.raises(DependencyFailed, match=f"unreachable at {url}: "):
        calls(url, ["a"])


def test_silent_server_is_a_dependency_error_after_the_timeout(stub):
    stub.gates["a"] = threading.Event()
    with pytest.raises(DependencyFailed, match="unreachable at .*ReadTimeout"):
        embed(stub, "a", embeddings_timeout_s=0.05)


def test_embeddings_of_another_width_than_before_are_refused(stub):
    def change():
        stub.dim = 32

    with pytest.raises(DependencyFailed, match="of 32 numbers, before they had 64; restart"):
        calls(stub.url, ["a"], ["b"], between=change)


def test_a_call_leaves_nothing_to_the_collector(stub):
    alive = []

    def count():
        alive.append(sum(type(each) is httpx.Response for each in gc.get_objects()))

    gc.collect()
    gc.disable()
    try:
        calls(stub.url, ["a"], ["b"], between=count)
    finally:
        gc.enable()
    assert alive == [0, 0]
