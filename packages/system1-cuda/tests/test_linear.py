"""Choosing a way for each product: by time, only where it agrees, kept for the next start."""

import logging
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

import system1_cuda.gemm_stream as stream
import system1_cuda.linear as linears
from system1_cuda.build import load_kernels
from system1_cuda.gemm import Product, Way, default_way, other_ways
from system1_cuda.gemm_choices import Choice, key_of, read_choices, write_choices
from system1_cuda.gemm_tune import TOLERANCE, choose, relative_error
from system1_cuda.quantised_linear import quantised_linear
from system1_torch.ops.quantised_linear import quantise_rows
from system1_torch.ops.quantised_linear import quantised_linear as reference
from system1_torch.testing import fresh_generator, poisoned

# The interpreter's own habit.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array with ndim")
gpu = pytest.mark.gpu
PLAIN, FAST, WRONG, BROKEN = (Way("torch"), Way("fast"), Way("wrong"), Way("broken"))
BF16 = torch.bfloat16
KEY = (0, 80, 5120, 6144, BF16, BF16, False)


def timed(times):
    """A timer that knows the answers; what it does not know cannot run."""

    def measure(way, calls):
        if way not in times:
            raise RuntimeError("out of registers")
        return times[way]

    return measure


@pytest.fixture(autouse=True)
def _forget(monkeypatch, tmp_path):
    monkeypatch.setattr(linears, "_WAYS", {})
    monkeypatch.setenv("SYSTEM1_CACHE", str(tmp_path))


def test_the_fastest_way_is_chosen():
    found = choose(PLAIN, [FAST], timed({PLAIN: 10.0, FAST: 8.0}), lambda way: True)
    assert found == Choice(FAST, 8.0, 10.0)


def test_a_faster_way_with_another_result_is_never_chosen():
    times = {PLAIN: 10.0, FAST: 8.0, WRONG: 5.0}
    found = choose(PLAIN, [WRONG, FAST], timed(times), lambda way: way != WRONG)
    assert found.way == FAST


def test_a_gain_within_the_noise_leaves_torch_in_place():
    found = choose(PLAIN, [FAST], timed({PLAIN: 10.0, FAST: 9.9}), lambda way: True)
    assert found == Choice(PLAIN, 10.0, 10.0)


def test_a_way_that_cannot_run_is_passed_over():
    found = choose(PLAIN, [BROKEN, FAST], timed({PLAIN: 10.0, FAST: 8.0}), lambda way: True)
    assert found.way == FAST


def test_ways_are_pruned_by_a_first_short_timing():
    calls = []
    others = [Way("fast", (index,)) for index in range(20)]

    def measure(way, count):
        calls.append((way, count))
        return 100.0 - sum(way.settings)

    assert choose(PLAIN, others, measure, lambda way: True).way == others[-1]
    longest = max(count for _, count in calls)
    assert len([way for way, count in calls if count == longest]) <= 5


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_result_that_is_not_a_number_agrees_with_nothing(dtype):
    expected = torch.ones(3, 3)
    found = torch.full((3, 3), float("nan"), dtype=dtype)
    assert not relative_error(found, expected) <= TOLERANCE[dtype]


def test_choices_are_read_as_they_were_written(tmp_path):
    file = tmp_path / "folder" / "choices.json"
    choices = {
        KEY: Choice(Way("cublaslt", (*range(-4, 4), 1 << 25, 1)), 12.5, 14.0),
        (*KEY[:4], torch.float8_e4m3fn, BF16, True): Choice(
            Way("stream", (128, 1, 5, 8)), 1.0, 2.0
        ),
    }
    write_choices(file, "here", choices)
    assert read_choices(file, 0, "here") == choices
    moved = {(3, *key[1:]): choice for key, choice in choices.items()}
    assert read_choices(file, 3, "here") == moved
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_choices_of_other_devices_and_libraries_stay_and_are_not_used(tmp_path):
    file = tmp_path / "choices.json"
    there, here = {KEY: Choice(Way("stream"), 1.0, 2.0)}, {KEY: Choice(PLAIN, 3.0, 3.0)}
    write_choices(file, "there", there)
    write_choices(file, "here", here)
    assert read_choices(file, 0, "here") == here
    assert read_choices(file, 0, "there") == there
    assert read_choices(file, 0, "elsewhere") == {}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"format": 2, "places": {}}',
        '{"format": 1}',
        '{"format": 1, "places": {"here": {"80 5120 6144 bfloat16 bfloat16 plain": {}}}}',
        '{"format": 1, "places": {"here": {"80 5120": {"kind": "torch", "settings": []}}}}',
    ],
)
def test_a_broken_file_is_ignored_with_a_warning_and_replaced(tmp_path, caplog, content):
    file = tmp_path / "choices.json"
    file.write_text(content)
    with caplog.at_level(logging.WARNING):
        assert read_choices(file, 0, "here") == {}
    assert "is not read" in caplog.text
    write_choices(file, "here", {KEY: Choice(PLAIN, 1.0, 1.0)})
    assert KEY in read_choices(file, 0, "here")


def test_an_unknown_way_in_the_file_is_not_run(tmp_path, caplog):
    file = tmp_path / "choices.json"
    write_choices(file, "here", {KEY: Choice(Way("magic"), 1.0, 1.0)})
    assert read_choices(file, 0, "here") == {}
    assert "magic" in caplog.text


def test_a_missing_file_is_no_warning(tmp_path, caplog):
    assert read_choices(tmp_path / "none.json", 0, "here") == {}
    assert not caplog.text


def test_time_that_runs_out_leaves_the_rest_to_torch(monkeypatch, caplog):
    weights = [(torch.ones(8, 16), None)]
    clock = iter(range(100))
    monkeypatch.setattr(linears, "monotonic", lambda: next(clock))
    monkeypatch.setattr(linears, "choose_for", lambda products: Choice(FAST, 1.0, 2.0))
    found = linears._tune([(weights, rows) for rows in (1, 2, 3, 4)], {}, seconds=2)
    assert [key[1] for key in found] == [1, 2]
    assert "2 shapes were not timed" in caplog.text


def test_what_is_known_is_not_timed_again(monkeypatch):
    weights = [(torch.ones(8, 16), None)]
    known = {key_of(linears.make_products(weights, 3)[0]): Choice(FAST, 1.0, 2.0)}

    def refuse(products):
        raise AssertionError("timed again")

    monkeypatch.setattr(linears, "choose_for", refuse)
    assert linears._tune([(weights, 3)], known, seconds=60) == {}


def test_projections_on_the_cpu_need_no_choice():
    projection = SimpleNamespace(weight=torch.ones(8, 16), scale=None, rest=None)
    linears.tune_linear([projection, torch.ones(8, 16)], [1, 2])
    assert linears._WAYS == {}


def test_weights_come_in_turn_until_they_defeat_the_cache():
    ones, many, small = torch.ones(8, 16), torch.ones(4, 16), torch.ones(1, 1)
    projection = SimpleNamespace(weight=ones, scale=None, rest=small)
    pairs = linears._pairs([projection, many, *[torch.ones(4, 16) for _ in range(9)]])
    groups = linears._by_shape(pairs, enough_bytes=4 * ones.nbytes)
    assert [len(group) for group in groups] == [4, 33, 8]
    assert all(len({weight.data_ptr() for weight, _ in group}) == len(group) for group in groups)
    assert groups[0][0][0] is ones


def test_without_a_choice_the_product_is_torchs(monkeypatch):
    x, weight, bias = torch.randn(3, 16), torch.randn(8, 16), torch.randn(8)
    monkeypatch.setattr(linears, "_WAYS", {KEY: FAST})
    assert torch.equal(linears.linear(x, weight, bias), F.linear(x, weight, bias))
    assert torch.equal(linears.linear(x[None], weight), F.linear(x[None], weight))


@pytest.mark.parametrize(
    ("rows", "parts"),
    [(1, (16, 0)), (17, (32, 0)), (48, (32, 16)), (80, (64, 16)), (107, (128, 0)),
     (128, (128, 0)), (129, (128, 16)), (160, (128, 32)), (192, (128, 64))],
)  # fmt: skip
def test_a_tile_has_little_more_than_its_tokens(rows, parts):
    assert stream.token_parts(rows) == parts


STREAMED = [(1, 64, 64), (5, 300, 304), (33, 512, 640), (80, 257, 512), (107, 128, 64),
            (160, 130, 192)]  # fmt: skip


@pytest.mark.parametrize("plan", stream.PLANS, ids=lambda plan: f"{plan.columns}x{plan.blocks}")
@pytest.mark.parametrize("processors", [1, 5, 9])
@pytest.mark.parametrize(("rows", "columns", "depth"), STREAMED)
def test_the_stream_kernel(rows, columns, depth, processors, plan):
    generator = fresh_generator()
    # The interpreter multiplies no bfloat16.
    device, dtype = ("cuda", BF16) if torch.cuda.is_available() else ("cpu", torch.float16)
    x, weight = (
        poisoned((count, depth), generator=generator, dtype=dtype, device=device)
        for count in (rows, columns)
    )
    bias = poisoned((columns,), generator=generator, dtype=dtype, device=device)

    def run():
        return stream.stream_linear(x, weight, bias, None, None, dtype, plan, processors=processors)

    found = run()
    expected = F.linear(x.float(), weight.float(), bias.float())
    assert relative_error(found, expected) < TOLERANCE[dtype]
    # The counters are as they were, and the order of sums is fixed.
    assert torch.equal(run(), found)


# From here on a device is needed.

SHAPES = [(16, 5120, 6144), (80, 16_480, 5120), (107, 5120, 17_408), (160, 9216, 2560),
          (192, 96, 5120), (936, 2560, 4096)]  # fmt: skip


def fp8_product(rows, columns, depth, generator):
    x = poisoned((rows, depth), generator=generator, dtype=BF16, device="cuda")
    weight = torch.randn(columns, depth, generator=generator).cuda() * 0.02
    (values, scales), (rounded, weight_scale) = quantise_rows(x), quantise_rows(weight)
    product = Product(
        x=values, weight=rounded, x_scale=scales, weight_scale=weight_scale, dtype=BF16
    )
    expected = (values.float() @ rounded.float().T) * scales[:, None] * weight_scale
    return product, expected


@gpu
@pytest.mark.parametrize(("rows", "columns", "depth"), [*SHAPES, (1, 64, 64), (13, 130, 72)])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, BF16])
def test_every_way_gives_the_same_product(rows, columns, depth, has_bias, dtype):
    load_kernels()
    stream.prepare_stream(torch.device("cuda", 0))
    generator = fresh_generator()
    x, weight = (
        poisoned((count, depth), generator=generator, dtype=dtype, device="cuda")
        for count in (rows, columns)
    )
    bias = torch.randn(columns, device="cuda", dtype=dtype) if has_bias else None
    product = Product(x=x, weight=weight, bias=bias, dtype=dtype)
    expected = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    check_ways(product, expected.float(), TOLERANCE[dtype])


@gpu
@pytest.mark.parametrize(("rows", "columns", "depth"), SHAPES)
def test_every_way_gives_the_same_product_in_fp8(rows, columns, depth):
    load_kernels()
    stream.prepare_stream(torch.device("cuda", 0))
    product, expected = fp8_product(rows, columns, depth, fresh_generator())
    check_ways(product, expected, TOLERANCE[BF16])


def check_ways(product, expected, limit):
    ways = [default_way(product), *other_ways(product)]
    assert any(way.kind == "cublaslt" for way in ways)
    errors, refused = {}, []
    for way in ways:
        try:
            errors[way] = relative_error(way.run(product), expected)
        except Exception as error:
            refused.append((way, error))
    print(len(ways), "ways, refused", [(way, repr(error)[:80]) for way, error in refused])
    assert len(errors) > len(refused)
    assert {way: error for way, error in errors.items() if not error <= limit} == {}


@gpu
def test_a_poisoned_row_stays_in_its_row():
    load_kernels()
    stream.prepare_stream(torch.device("cuda", 0))
    x, weight = (
        torch.randn(107, 2560, device="cuda", dtype=BF16),
        torch.randn(4096, 2560, device="cuda", dtype=BF16),
    )
    product = Product(x=x, weight=weight, dtype=BF16)
    ways = list(other_ways(product))
    clean = [way.run(product) for way in ways]
    x[50:] = float("nan")
    for way, before in zip(ways, clean, strict=True):
        after = way.run(product)
        assert torch.equal(after[:50], before[:50]), way
        assert after[50:].isnan().all()


@gpu
def test_tuned_products_run_in_graphs_and_later_starts_time_nothing(monkeypatch):
    load_kernels()
    weight = torch.randn(5120, 6144, device="cuda", dtype=BF16) * 0.02
    rounded, scale = quantise_rows(torch.randn(4096, 2560, device="cuda"))
    projections = [
        weight,
        SimpleNamespace(weight=rounded, scale=scale, rest=weight[:96]),
    ]
    linears.tune_linear(projections, [80, 107])
    assert len(linears._WAYS) == 6
    ways = dict(linears._WAYS)
    monkeypatch.setattr(linears, "_WAYS", {})
    monkeypatch.setattr(linears, "choose_for", None)
    linears.tune_linear(projections, [80, 107])
    assert ways == linears._WAYS
    x, y = (torch.randn(107, width, device="cuda", dtype=BF16) for width in (6144, 2560))

    def run():
        return linears.linear(x, weight), quantised_linear(y, rounded, scale)

    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run()
    for tensor in (x, y):
        tensor.normal_()
    graph.replay()
    assert relative_error(found[0], F.linear(x.float(), weight.float())) < TOLERANCE[BF16]
    assert relative_error(found[1], reference(y.float(), rounded, scale)) < 1e-2
