"""What the original workers refuse is refused, with the statuses of each mode."""

import json

import pytest
from conftest import body, data_url, fixture, load_of, question

from models_cuas1.load import load_processor
from models_cuas1.prompt import MULTIMODAL, TEXT
from models_cuas1.reference import ReferenceDialect, entropy_confidence
from system1_core.errors import InvalidRequest, System1Error, TooLarge
from system1_core.wire.dialect import Body, RequestLimits

# The rest never reaches a dialect: not strict JSON.
ERRORS = [case for case in fixture("errors.json") if "body" in case]
PICTURE = {"image": data_url("images/small.png")}


def parse(fields, modality=None, num_bytes=None):
    size = len(json.dumps(fields)) if num_bytes is None else num_bytes
    return ReferenceDialect(modality).parse(Body(json=fields, num_bytes=size), RequestLimits())


def refused(fields, modality=None, **more):
    with pytest.raises(System1Error) as caught:
        parse(fields, modality, **more)
    return caught.value


@pytest.fixture(scope="module")
def processors():
    return {worker: load_processor(load_of(f"cuas1-{worker}")) for worker in (TEXT, MULTIMODAL)}


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: f"{case['worker']}-{case['name']}")
def test_a_worker_of_one_mode_refuses_with_the_originals_status(processors, case):
    with pytest.raises(System1Error) as caught:
        processors[case["worker"]].prepare(parse(case["body"], case["worker"]))
    assert caught.value.status == {400: 422}.get(case["status"], case["status"])


def test_an_array_is_no_request():
    assert refused([1, 2]).status == 422


@pytest.mark.parametrize("modality", [TEXT, MULTIMODAL])
def test_the_largest_request_of_a_mode_is_accepted(modality):
    state, count = ("Screen", 64) if modality == TEXT else (PICTURE, 8)
    request = parse(body(state, **{f"q{i}": question() for i in range(count)}), modality)
    assert len(request.questions) == count


@pytest.mark.parametrize(
    ("state", "status"), [("Screen", 413), (PICTURE, 422)], ids=["text", "picture"]
)
def test_too_many_questions_have_the_status_of_their_mode(state, status):
    count = 65 if state == "Screen" else 9
    error = refused(body(state, **{f"q{i}": question() for i in range(count)}))
    assert error.status == status
    assert f"{count} questions" in error.message


@pytest.mark.parametrize(
    ("state", "limit"), [("Screen", 4 * 2**20), (PICTURE, 8 * 2**20)], ids=["text", "picture"]
)
def test_a_body_over_the_limit_of_its_mode_is_413(state, limit):
    assert parse(body(state), num_bytes=limit)
    assert refused(body(state), num_bytes=limit + 1).status == 413


def test_text_ignores_unknown_fields_and_a_picture_refuses_them():
    more = {"extra": 1, "questions": {"q": question(weight=1)}}
    assert parse(body() | more)
    assert "'extra'" in refused(body(PICTURE) | {"extra": 1}).message
    assert "'weight'" in refused(body(PICTURE, q=question(weight=1))).message


@pytest.mark.parametrize("name", ["", "x" * 257], ids=["empty", "257 characters"])
def test_text_takes_any_name_and_a_picture_none_of_zero_or_over_256_characters(name):
    named_question, named_option = {name: question()}, question(criteria={name: "x"})
    assert parse(body(**named_question))
    assert parse(body(q=named_option))
    assert refused(body(PICTURE, **named_question)).status == 422
    assert refused(body(PICTURE, q=named_option)).status == 422


def test_null_instructions_are_no_goal_but_must_be_there():
    assert parse(body(q=question(instructions=None)))
    missing = question()
    del missing["instructions"]
    assert "instructions" in refused(body(q=missing)).message


@pytest.mark.parametrize("name", ["other", "jev-latest", "cuas1", None, 3])
def test_only_the_originals_model_name_is_accepted(name):
    assert refused(body() | {"model": name}).status == 422


def test_with_both_adapters_the_state_chooses():
    assert not parse(body()).images
    assert not parse(body({"tree": "x"})).images
    assert len(parse(body(PICTURE)).images) == 1


@pytest.mark.parametrize(
    "state",
    [PICTURE | {"note": "x"}, {"image": "https://example.invalid/a.png"}, {"image": 3}],
    ids=["text beside it", "url", "number"],
)
def test_with_both_adapters_an_unsound_picture_is_never_read_as_text(state):
    assert refused(body(state)).status == 422


def test_a_text_worker_reads_any_object_as_text():
    assert not parse(body(PICTURE | {"note": "x"}), TEXT).images
    assert not parse(body({"image": "logo.png"}), TEXT).images


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("data:image/png;base64,", "neither png nor jpeg"),
        ("data:image/PNG;base64,iVBORw0KGgo=", "expected a data URL"),
        ("data:image/jpg;base64,/9j/", "expected a data URL"),
        ("data:image/png;name=a;base64,iVBORw0KGgo=", "expected a data URL"),
        ("data:image/png;base64,iVBORw0K Ggo=", "strict base64"),
        ("data:image/png;base64,iVBORw0KGgo", "strict base64"),
        ("data:image/jpeg;base64,iVBORw0KGgo=", "said to be jpeg, its bytes are png"),
        ("data:image/png;base64," + "A" * 5_592_420, "limit 4194304"),
    ],
    ids=["empty", "upper case", "jpg", "parameter", "space", "no padding", "format", "size"],
)
def test_a_data_url_is_taken_strictly(url, words):
    error = refused(body({"image": url}))
    assert error.status == 422
    assert words in error.message


def test_many_states_are_read_each_as_a_request_of_its_own():
    fields = body()
    del fields["state"]
    dialect = ReferenceDialect()
    found = dialect.parse_batch(Body(json=fields | {"states": ["x", PICTURE]}), RequestLimits())
    assert [len(request.images) for request in found] == [0, 1]
    for states in ([], None, [""]):
        with pytest.raises(InvalidRequest):
            dialect.parse_batch(Body(json=fields | {"states": states}), RequestLimits())
    with pytest.raises(TooLarge):
        dialect.parse_batch(Body(json=fields | {"states": ["x"] * 65}), RequestLimits())


def test_confidence_is_one_less_the_share_of_entropy():
    published = (0.0024726232513785362, 0.9975274205207825)
    assert entropy_confidence(published) == pytest.approx(0.9750249565060322, abs=1e-12)
    assert entropy_confidence((0.25,) * 4) == 0
    assert entropy_confidence((1.0,)) == 1
    assert entropy_confidence((0.0, 1.0)) == 1


def test_names_that_begin_with_an_underscore_survive(served):
    fields = body(_sa_q=question(criteria={"_sa_a": "x", "b": "y"}))
    answers = served.ask_reference(fields)["answers"]
    assert list(answers["_sa_q"]["probabilities"]) == ["_sa_a", "b"]
