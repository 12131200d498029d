"""Generated requests, from the server's own OpenAPI document: schemathesis and hypothesis."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from serving import Serving

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
# Derandomised: a failure is the same one every time, and CI never fails by luck.
BOUNDED = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
GETS = ("/health", "/v1/models")
POSTS = ("/v1/systemone", "/v1/systemone/batch", "/v1/decisions")


@pytest.fixture(scope="module")
def document(mini: Serving) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_url(f"{mini.url}/openapi.json")


def test_the_document_names_every_route_of_the_protocol(
    document: schemathesis.BaseSchema,
) -> None:
    assert {*GETS, *POSTS} <= set(document.raw_schema["paths"])


@pytest.mark.parametrize("path", GETS)
def test_what_is_got_is_as_documented(document: schemathesis.BaseSchema, path: str) -> None:
    document[path]["GET"].Case().call_and_validate(checks=CHECKS)


@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: f"{mode.value} data")
@pytest.mark.parametrize("path", POSTS)
def test_a_generated_request_gets_a_documented_answer(
    document: schemathesis.BaseSchema, path: str, mode: GenerationMode
) -> None:
    @BOUNDED
    @given(document[path]["POST"].as_strategy(generation_mode=mode))
    def every_case(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS, timeout=60)

    every_case()
