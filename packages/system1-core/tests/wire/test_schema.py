import json
import re

import pytest

from system1_core.wire.dialect import RequestLimits
from system1_core.wire.schema import components, openapi_document


def test_every_reference_leads_to_a_schema_and_every_schema_is_used():
    document = openapi_document("0.3.0")
    used = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(document)))
    assert used == set(document["components"]["schemas"])


def test_the_prefix_of_a_proxy_is_the_server_of_the_document():
    assert openapi_document("0.3.0", "/prefix")["servers"] == [{"url": "/prefix"}]
    assert "servers" not in openapi_document("0.3.0")


def test_limits_of_the_server_stand_in_the_schemas():
    schemas = components(RequestLimits(max_options=7, max_levels=3, max_questions=2))
    choice = schemas["ChoiceQuestion"]["properties"]["criteria"]
    assert choice["maxProperties"] == 7
    assert schemas["ScoreQuestion"]["properties"]["criteria"]["maxItems"] == 3
    assert schemas["SystemOneRequest"]["properties"]["questions"]["maxProperties"] == 2


@pytest.mark.parametrize("path", ["/v1/systemone", "/v1/systemone/batch", "/v1/decisions"])
def test_every_route_documents_the_statuses_of_the_protocol(path):
    responses = openapi_document("0.3.0")["paths"][path]["post"]["responses"]
    assert {"200", "401", "404", "408", "413", "415", "422", "503", "504", "529"} <= set(responses)
