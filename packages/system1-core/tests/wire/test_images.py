import random
import re
from base64 import b64encode

import pytest

from system1_core.errors import TooLarge
from system1_core.request import Image, placeholder_pattern
from system1_core.wire.dialect import Body, RequestLimits
from system1_core.wire.images import split_text
from system1_core.wire.systemone import SystemOne

NOUL = {"type": "noul", "instructions": "Is it?"}
JPEG = b"\xff\xd8\xff\xe0" + b"\0" * 20


def text_of(content):
    return b64encode(content).decode()


def url_of(content, kind="png"):
    return f"data:image/{kind};base64,{text_of(content)}"


def inline(content):
    return {"type": "image", "format": "png", "data_base64": text_of(content)}


def body(state, question=NOUL, **fields):
    return {"state": state, "questions": {"q": question}, **fields}


def test_an_inline_asset_is_an_image_under_its_own_name(parse, png):
    request = parse(body({"shot": "see pic1"}, assets={"pic1": inline(png(1))}))
    assert request.state == {"shot": "see pic1"}
    assert dict(request.images) == {
        "pic1": Image(placeholder="pic1", data=png(1), format="png"),
    }


def test_the_format_is_read_from_the_bytes_and_not_the_claim(parse):
    assert parse(body("p", assets={"p": inline(JPEG)})).images["p"].format == "jpeg"


def test_an_asset_may_be_a_part_and_then_its_inline_data_is_ignored(parse, png):
    asset = {"type": "image", "part": "asset-0", "data_base64": "!!"}
    request = parse(body("<image:0>", assets={"<image:0>": asset}), parts={"asset-0": png(1)})
    assert request.images["<image:0>"].data == png(1)


def test_images_are_in_the_order_of_first_mention_state_first(parse, png):
    names = ("a1", "b2", "c3", "d4")
    question = {"type": "choice", "instructions": ["c3", "a1"], "criteria": {"x": {"y": "d4"}}}
    assets = {name: inline(png(i)) for i, name in enumerate(reversed(names))}
    request = parse(body([{"k": "b2"}, "and a1"], question, assets=assets))
    assert list(request.images) == ["b2", "a1", "c3", "d4"]


def test_of_overlapping_placeholders_the_longest_counts(parse, refusal, png):
    assets = {"pic1": inline(png(1)), "pic10": inline(png(2))}
    assert list(parse(body("pic10 then pic1", assets=assets)).images) == ["pic10", "pic1"]
    (problem,) = refusal(parse, body("only pic10", assets=assets))
    assert "'pic1'" in problem["msg"]


def test_text_is_split_at_placeholders_longest_first(parse, png):
    assets = {"pic1": inline(png(1)), "pic10": inline(png(2))}
    images = parse(body("pic10 pic1", assets=assets)).images
    assert split_text("pic10a pic1", images) == [images["pic10"], "a ", images["pic1"]]
    assert split_text("none", images) == ["none"]
    assert split_text("text", {}) == ["text"]
    assert split_text("", images) == []


def test_a_key_of_an_object_is_no_mention(parse, refusal, png):
    assert "'pic1'" in refusal(parse, body({"pic1": 1}, assets={"pic1": inline(png(1))}))[0]["msg"]


def test_an_asset_that_nothing_mentions_is_refused_by_name(parse, refusal, png):
    (problem,) = refusal(parse, body("text", assets={"pic1": inline(png(1))}))
    assert problem["loc"] == ["body", "assets", "pic1"]
    assert problem["type"] == "unreferenced"


def test_empty_assets_are_refused_and_null_is_absent(parse, refusal):
    assert refusal(parse, body("s", assets={}))[0]["loc"] == ["body", "assets"]
    assert parse(body("s", assets=None)).images == {}


@pytest.mark.parametrize("assets", [[], "x", 1])
def test_assets_are_an_object(parse, refusal, assets):
    assert refusal(parse, body("s", assets=assets))[0]["loc"] == ["body", "assets"]


@pytest.mark.parametrize(
    ("asset", "field"),
    [
        ("x", None),
        ({}, "type"),
        ({"type": "video", "data_base64": "AAAA"}, "type"),
        ({"type": "image"}, "data_base64"),
        ({"type": "image", "data_base64": None}, "data_base64"),
        ({"type": "image", "data_base64": ""}, "data_base64"),
        ({"type": "image", "data_base64": "AAA"}, "data_base64"),
        ({"type": "image", "data_base64": "AA AA"}, "data_base64"),
        ({"type": "image", "data_base64": "AA-_"}, "data_base64"),
        ({"type": "image", "data_base64": "é"}, "data_base64"),
        ({"type": "image", "data_base64": text_of(b"GIF89a")}, "data_base64"),
        ({"type": "image", "part": "asset-0"}, "part"),
        ({"type": "image", "part": 5}, "part"),
    ],
)
def test_a_malformed_asset_is_refused_in_place(parse, refusal, asset, field):
    (problem,) = refusal(parse, body("p", assets={"p": asset}))
    assert problem["loc"] == ["body", "assets", "p"] + ([field] if field else [])


@pytest.mark.parametrize(
    "damage", [lambda text: text + "\n", lambda text: text[:8] + " " + text[8:]]
)
def test_base64_with_white_space_is_refused(parse, refusal, png, damage):
    asset = {"type": "image", "data_base64": damage(text_of(png(1)))}
    assert refusal(parse, body("p", assets={"p": asset}))[0]["type"] == "base64_invalid"


def test_an_empty_alias_is_refused(parse, refusal, png):
    assert "empty" in refusal(parse, body("s", assets={" ": inline(png(1))}))[0]["msg"]


def test_a_part_that_no_asset_claims_is_refused_by_name(parse, refusal, png):
    assert "'asset-0'" in refusal(parse, body("s"), parts={"asset-0": png(1)})[0]["msg"]


def test_a_part_is_claimed_once(parse, refusal, png):
    asset = {"type": "image", "part": "asset-0"}
    request = body("p q", assets={"p": asset, "q": asset})
    (problem,) = refusal(parse, request, parts={"asset-0": png(1)})
    assert problem["loc"] == ["body", "assets", "q", "part"]


def test_media_stand_where_the_text_says(parse, png):
    media = [{"type": "image", "data": url_of(png(i))} for i in range(2)]
    request = parse(body("first <image:2> then <image:1>", media=media))
    assert request.state == "first <image:2> then <image:1>"
    assert [image.data for image in request.images.values()] == [png(1), png(0)]


@pytest.mark.parametrize("write", [text_of, url_of])
def test_images_are_base64_or_data_urls(parse, png, write):
    request = parse(body("what is [image 1]?", images=[write(png(1))]))
    assert request.images["[image 1]"].data == png(1)


@pytest.mark.parametrize(
    ("state", "placed"),
    [
        ("text", "[image 1][image 2]\ntext"),
        ("", "[image 1][image 2]"),
        (["a"], ["[image 1]", "[image 2]", "a"]),
        ({"a": 1}, ["[image 1]", "[image 2]", {"a": 1}]),
        ("see [image 1]", "[image 2]\nsee [image 1]"),
    ],
)
def test_images_that_no_text_mentions_precede_the_state(parse, png, state, placed):
    request = parse(body(state, images=[text_of(png(1)), text_of(png(2))]))
    assert request.state == placed
    assert set(request.images) == {"[image 1]", "[image 2]"}
    assert next(iter(request.images)) == ("[image 2]" if state == "see [image 1]" else "[image 1]")


def test_image_url_items_of_a_state_array_become_placeholders(parse, png):
    def item(seed):
        return {"type": "image_url", "image_url": {"url": url_of(png(seed))}}

    request = parse(body(["look", item(1), {"type": "text", "text": "x"}, item(2), item(1)]))
    first, second = request.images
    assert request.state == ["look", first, {"type": "text", "text": "x"}, second, first]
    assert request.images[first].data == png(1)
    assert first.startswith("<image:")
    assert len(first) == len("<image:>") + 32


def test_the_same_bytes_give_the_same_placeholder_in_every_request(parse, png):
    item = {"type": "image_url", "image_url": {"url": url_of(png(1))}}
    assert parse(body([item])).state == parse(body([item])).state


@pytest.mark.parametrize(
    "fields",
    [
        {"images": ["https://example.com/a.png"]},
        {"media": [{"type": "image", "data": "http://example.com/a.png"}]},
        {"state": [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]},
        {"images": ["file:///etc/passwd"]},
    ],
)
def test_remote_images_are_never_fetched(parse, refusal, fields):
    (problem,) = refusal(parse, {**body("s"), **fields})
    assert "never fetched" in problem["msg"]


@pytest.mark.parametrize(
    "fields",
    [
        {"images": "AAAA"},
        {"images": [1]},
        {"media": {"type": "image"}},
        {"media": ["x"]},
        {"media": [{"type": "image"}]},
        {"state": [{"type": "image_url"}]},
        {"state": [{"type": "image_url", "image_url": 5}]},
        {"state": [{"type": "image_url", "image_url": {"url": "data:image/png,abc"}}]},
    ],
)
def test_malformed_image_fields_are_refused_in_place(parse, refusal, fields):
    (problem,) = refusal(parse, {**body("s"), **fields})
    assert problem["loc"][1] == next(iter(fields))


def test_two_images_of_one_name_are_refused(parse, refusal, png):
    request = body("[image 1]", images=[text_of(png(1))], assets={"[image 1]": inline(png(2))})
    assert refusal(parse, request)[0]["type"] == "duplicate"


def test_too_many_images_name_the_limit(parse, refusal, png):
    request = body("s", images=[text_of(png(i)) for i in range(4)])
    assert "more than 2 images" in refusal(parse, request, max_images=2)[0]["msg"]


def test_the_name_of_an_asset_is_bounded(parse, refusal, png):
    name = "p" * 257
    (problem,) = refusal(parse, body(name, assets={name: inline(png(1))}))
    assert problem["msg"] == "assets: a name of 257 characters, limit 256; shorten it"
    assert list(parse(body(name, assets={name[1:]: inline(png(1))})).images) == [name[1:]]


def test_a_long_text_is_refused_before_images_are_looked_for_in_it(parse, png):
    request = body("p" * 11, assets={"p": inline(png(1))})
    with pytest.raises(TooLarge, match="limit 10"):
        parse(request, max_text_chars=10)


def test_what_placeholders_begin_with_is_compared_once():
    pattern = placeholder_pattern(["pic1", "pic10", "pic2", "x"])
    assert pattern.pattern.count("pic") == 1
    assert placeholder_pattern([]).search("anything") is None


def test_placeholders_are_found_as_the_longest_at_a_position():
    draw = random.Random(0)
    for _ in range(500):
        names = {"".join(draw.choices("ab.|", k=draw.randint(1, 4))) for _ in range(6)}
        longest_first = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        text = "".join(draw.choices("ab.|", k=40))
        assert placeholder_pattern(names).findall(text) == re.findall(longest_first, text)


def test_an_image_over_the_limit_is_413(parse, png):
    size = len(png(1))
    assert parse(body("p", assets={"p": inline(png(1))}), max_image_bytes=size)
    with pytest.raises(TooLarge, match=f"limit {size - 3}"):
        parse(body("p", assets={"p": inline(png(1))}), max_image_bytes=size - 3)
    asset = {"type": "image", "part": "asset-0"}
    with pytest.raises(TooLarge, match=f"{size} bytes, limit {size - 1}"):
        parse(body("p", assets={"p": asset}), {"asset-0": png(1)}, max_image_bytes=size - 1)


def batch(json):
    return SystemOne().parse_batch(Body(json=json), RequestLimits())


def test_the_states_of_a_batch_share_assets(png):
    first, second = batch(
        {
            "states": ["a p", "b"],
            "questions": {"q": {"type": "noul", "instructions": "like r?"}},
            "assets": {"p": inline(png(1)), "r": inline(png(2))},
        }
    )
    assert list(first.images) == ["p", "r"]
    assert list(second.images) == ["r"]


def test_an_asset_that_no_state_of_a_batch_mentions_is_refused(refusal, png):
    json = {"states": ["a"], "questions": {"q": NOUL}, "assets": {"p": inline(png(1))}}
    assert refusal(batch, json)[0]["loc"] == ["body", "assets", "p"]


def test_images_beside_the_states_of_a_batch_are_ambiguous(refusal, png):
    json = {"states": ["a"], "questions": {"q": NOUL}, "images": [text_of(png(1))]}
    assert "use assets" in refusal(batch, json)[0]["msg"]


def test_image_items_of_a_batch_belong_to_their_state(png):
    item = {"type": "image_url", "image_url": {"url": url_of(png(1))}}
    first, second = batch({"states": [[item], "text"], "questions": {"q": NOUL}})
    assert len(first.images) == 1
    assert not second.images
