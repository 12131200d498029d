"""The contract of both schedulers, and what only the batch one promises."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from system1_core.errors import DeadlineExceeded, InferenceFailed, ModelUnavailable, QueueFull
from system1_core.processor import Prompt
from system1_core.scheduler import Scheduler, SchedulerLimits
from system1_core.scheduler.batch import BatchScheduler
from system1_core.scheduler.serial import SerialScheduler


class Device:
    """Echoes token ids; a closed gate holds every batch until it opens."""

    def __init__(self) -> None:
        self.batches: list[list[Prompt]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.extra_outputs = 0

    async def execute(self, prompts: Sequence[Prompt]) -> list[Any]:
        self.batches.append(list(prompts))
        await self.gate.wait()
        await asyncio.sleep(0)
        if self.error is not None and any(prompt.token_ids[0] == 13 for prompt in prompts):
            raise self.error
        return [prompt.token_ids[0] for prompt in prompts] + [0] * self.extra_outputs

    @property
    def seen(self) -> list[list[int]]:
        return [[prompt.token_ids[0] for prompt in batch] for batch in self.batches]


def limits(**changes: Any) -> SchedulerLimits:
    settings: dict[str, Any] = {"cost": lambda batch, prompt: prompt.num_tokens}
    return SchedulerLimits(**(settings | changes))


def prompts(*ids: int, length: int = 1, key: str | None = None) -> list[Prompt]:
    return [Prompt([one] * length, batch_key=key) for one in ids]


@pytest.fixture(params=[BatchScheduler, SerialScheduler])
def kind(request: pytest.FixtureRequest) -> type[Scheduler]:
    return request.param


def start(scheduler: Scheduler, *ids: int, **options: Any) -> asyncio.Task[list[Any]]:
    return asyncio.create_task(scheduler.run(prompts(*ids, **options), None))


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_outputs_come_back_in_the_order_of_the_prompts(kind):
    scheduler = kind(Device().execute, limits())
    assert await scheduler.run(prompts(3, 1, 2), None) == [3, 1, 2]


async def test_results_go_back_to_their_own_request(kind):
    scheduler = kind(Device().execute, limits())
    tasks = [start(scheduler, 10 * i, 10 * i + 1) for i in range(20)]
    assert await asyncio.gather(*tasks) == [[10 * i, 10 * i + 1] for i in range(20)]


async def test_a_full_queue_refuses_at_admission(kind):
    device = Device()
    device.gate.clear()
    scheduler = kind(device.execute, limits(max_queued_requests=2))
    first = [start(scheduler, 1), start(scheduler, 2)]
    await settle()
    with pytest.raises(QueueFull, match="limit 2"):
        await scheduler.run(prompts(3), None)
    device.gate.set()
    assert await asyncio.gather(*first) == [[1], [2]]
    assert scheduler.queued_requests == 0


async def test_cancelled_before_dispatch_never_runs(kind):
    device = Device()
    device.gate.clear()
    scheduler = kind(device.execute, limits())
    running, waiting = start(scheduler, 1), start(scheduler, 2)
    await settle()
    waiting.cancel()
    device.gate.set()
    assert await running == [1]
    await settle()
    assert device.seen == [[1]]
    assert scheduler.queued_requests == 0


async def test_a_cancelled_running_batch_holds_its_permit_to_the_end(kind):
    device = Device()
    device.gate.clear()
    scheduler = kind(device.execute, limits())
    running, waiting = start(scheduler, 1), start(scheduler, 2)
    await settle()
    running.cancel()
    await settle()
    assert device.seen == [[1]]
    device.gate.set()
    assert await waiting == [2]


async def test_a_deadline_drops_what_waits(kind):
    device = Device()
    device.gate.clear()
    scheduler = kind(device.execute, limits())
    running = start(scheduler, 1)
    await settle()
    with pytest.raises(DeadlineExceeded):
        await scheduler.run(prompts(2), asyncio.get_running_loop().time() + 0.01)
    device.gate.set()
    assert await running == [1]
    assert device.seen == [[1]]


async def test_a_failing_batch_fails_only_its_requests(kind):
    device = Device()
    device.error = InferenceFailed()
    scheduler = kind(device.execute, limits(max_batch_prompts=1))
    good, bad, after = start(scheduler, 1), start(scheduler, 13), start(scheduler, 2)
    with pytest.raises(InferenceFailed):
        await bad
    assert [await good, await after] == [[1], [2]]


async def test_closing_refuses_new_requests(kind):
    scheduler = kind(Device().execute, limits())
    await scheduler.close()
    with pytest.raises(ModelUnavailable):
        await scheduler.run(prompts(1), None)


async def test_closing_fails_who_waits_and_finishes_what_runs():
    device = Device()
    device.gate.clear()
    scheduler = BatchScheduler(device.execute, limits())
    running, waiting = start(scheduler, 1), start(scheduler, 2)
    await settle()
    closing = asyncio.create_task(scheduler.close())
    await settle()
    assert not closing.done()
    device.gate.set()
    await closing
    assert await running == [1]
    with pytest.raises(ModelUnavailable):
        await waiting


async def test_serial_runs_nothing_of_another_request_between():
    device = Device()
    scheduler = SerialScheduler(device.execute, limits())
    await asyncio.gather(start(scheduler, 1, 2), start(scheduler, 3, 4))
    assert device.seen == [[1], [2], [3], [4]]


async def test_a_batch_fills_across_requests_with_prompts_of_one_adjacent():
    device = Device()
    device.gate.clear()
    scheduler = BatchScheduler(device.execute, limits())
    tasks = [start(scheduler, 0), start(scheduler, 1, 2), start(scheduler, 3, 4)]
    await settle()
    device.gate.set()
    await asyncio.gather(*tasks)
    assert device.seen == [[0], [1, 2, 3, 4]]


async def test_the_first_request_leaves_at_once():
    device = Device()
    device.gate.clear()
    scheduler = BatchScheduler(device.execute, limits())
    task = start(scheduler, 1)
    await settle()
    assert device.seen == [[1]]
    device.gate.set()
    await task


async def test_batches_stay_within_the_token_budget():
    device = Device()
    device.gate.clear()
    scheduler = BatchScheduler(device.execute, limits(max_batch_tokens=10))
    tasks = [start(scheduler, 0), start(scheduler, 1, 2, 3, length=4)]
    await settle()
    device.gate.set()
    await asyncio.gather(*tasks)
    assert device.seen == [[0], [1, 2], [3]]


async def test_the_budget_counts_by_the_executors_cost():
    device = Device()
    device.gate.clear()
    padded = limits(cost=lambda batch, prompt: 6, max_batch_tokens=10)
    scheduler = BatchScheduler(device.execute, padded)
    tasks = [start(scheduler, 0), start(scheduler, 1, 2)]
    await settle()
    device.gate.set()
    await asyncio.gather(*tasks)
    assert device.seen == [[0], [1], [2]]


async def test_a_prompt_over_the_budget_runs_alone():
    device = Device()
    scheduler = BatchScheduler(device.execute, limits(max_batch_tokens=10))
    assert await scheduler.run(prompts(1, 2, length=50), None) == [1, 2]
    assert device.seen == [[1], [2]]


async def test_only_equal_keys_share_a_batch():
    device = Device()
    device.gate.clear()
    scheduler = BatchScheduler(device.execute, limits())
    mixed = [*prompts(1, key="a"), *prompts(2, key="b"), *prompts(3, key="a")]
    tasks = [start(scheduler, 0), asyncio.create_task(scheduler.run(mixed, None))]
    await settle()
    device.gate.set()
    assert await asyncio.gather(*tasks) == [[0], [1, 2, 3]]
    assert device.seen == [[0], [1, 3], [2]]


async def test_a_huge_request_does_not_starve_the_rest():
    device = Device()
    device.gate.clear()
    scheduler = BatchScheduler(device.execute, limits(max_batch_prompts=2))
    tasks = [start(scheduler, *range(10)), start(scheduler, 20)]
    await settle()
    device.gate.set()
    await asyncio.gather(*tasks)
    assert device.seen[:3] == [[0, 1], [2, 3], [20, 4]]


async def test_who_is_passed_over_keeps_the_place():
    device = Device()
    device.gate.clear()
    scheduler = BatchScheduler(device.execute, limits())
    tasks = [
        start(scheduler, 0, key="a"),
        start(scheduler, 1, key="a"),
        start(scheduler, 2, key="b"),
        start(scheduler, 3, key="a"),
        start(scheduler, 4, key="b"),
    ]
    await settle()
    device.gate.set()
    await asyncio.gather(*tasks)
    assert device.seen == [[0], [1, 3], [2, 4]]


async def test_a_wrong_output_count_is_an_error():
    device = Device()
    device.extra_outputs = 1
    scheduler = BatchScheduler(device.execute, limits())
    with pytest.raises(InferenceFailed):
        await scheduler.run(prompts(1), None)


async def test_batches_of_io_overlap_up_to_the_limit():
    device = Device()
    device.gate.clear()
    scheduler = BatchScheduler(device.execute, limits(max_concurrent_batches=2))
    tasks = [start(scheduler, i) for i in range(3)]
    await settle()
    assert device.seen == [[0], [1]]
    device.gate.set()
    await asyncio.gather(*tasks)


async def test_a_request_over_the_whole_queue_enters_when_it_is_empty():
    scheduler = BatchScheduler(Device().execute, limits(max_queued_prompts=2))
    assert await scheduler.run(prompts(1, 2, 3), None) == [1, 2, 3]


async def test_waiting_time_is_observed_once_a_request():
    waits: list[float] = []
    scheduler = BatchScheduler(
        Device().execute, limits(max_batch_prompts=1, observe_wait_s=waits.append)
    )
    await scheduler.run(prompts(1, 2, 3), None)
    assert len(waits) == 1
    assert waits[0] >= 0
