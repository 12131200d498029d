"""What a pass read, for all its sequences at once: one copy to the device, one back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import overload

import torch
from torch import Tensor

from models_qwen3_5.ops import Ops
from models_qwen3_5.sequence import Readout, Reads
from models_qwen3_5.text import TextModel

# Letters of up to 26 options are 26 lists: 2 MiB at 2,560 columns, 10 MiB in the worst case.
MAX_LISTS, MAX_LIST_TOKENS = 32, 32
# Where rows are: one behind the other, or by an index on the device.
Places = slice | Tensor


class HeadRows:
    """Rows of the vocabulary head; those of the latest short lists of tokens are kept.

    The weights do not change behind the first read. One thread owns it.
    """

    def __init__(self, text: TextModel, ops: Ops) -> None:
        self.ops = ops
        self._text = text
        self._kept: dict[tuple[int, ...], Tensor] = {}

    @property
    def weight(self) -> Tensor:
        head = self._text.head
        assert head is not None, "logits were read from a backbone loaded without its head"
        return head

    def kept(self, token_ids: tuple[int, ...]) -> Tensor | None:
        """Rows [k, D] of a list that was read before."""
        rows = self._kept.pop(token_ids, None)
        if rows is not None:
            # The latest is last.
            self._kept[token_ids] = rows
        return rows

    def keep(self, token_ids: tuple[int, ...], index: Places) -> Tensor:
        """Rows [k, D] of a list, by its token ids on the device."""
        rows = take(self.weight, index)
        if len(token_ids) <= MAX_LIST_TOKENS:
            while len(self._kept) >= MAX_LISTS:
                del self._kept[next(iter(self._kept))]
            self._kept[token_ids] = rows
        return rows

    def close(self) -> None:
        """Let go of every row."""
        self._kept.clear()


class Readouts(Sequence[Readout]):
    """The answers to the reads of all sequences, in their order; computed when first asked for.

    `rows` [R, D] in the model's dtype are the final-norm rows that were read, each once, in the
    order of the pass, and `places` says for each sequence which of them its `hidden` are. The
    next pass may overwrite `rows`; what has been asked for by then stays.
    """

    def __init__(
        self,
        rows: Tensor,
        reads: Sequence[Reads],
        lookups: Sequence[Mapping[int, int]],
        head: HeadRows,
    ) -> None:
        self.rows = rows
        self.places = [
            [lookup[at] for at in read.hidden] if read.hidden else []
            for read, lookup in zip(reads, lookups, strict=True)
        ]
        self._reads = reads
        self._lookups = lookups
        self._head = head

    def __len__(self) -> int:
        return len(self._reads)

    @overload
    def __getitem__(self, index: int) -> Readout: ...
    @overload
    def __getitem__(self, index: slice) -> list[Readout]: ...
    def __getitem__(self, index: int | slice) -> Readout | list[Readout]:
        return self._views[index]

    @cached_property
    def hidden(self) -> Tensor:
        """Hidden rows [n, D] of all sequences, float32."""
        index = self._index.places("hidden")
        if isinstance(index, slice):
            return self.rows[index].to(torch.float32, copy=True)
        return self.rows.index_select(0, index).float()

    @cached_property
    def logprobs(self) -> Tensor:
        """Log-probabilities [n] of all sequences, float32: each row is normalised once."""
        index, rows = self._index, self.rows
        if not self._pairs:
            return rows.new_empty(0, dtype=torch.float32)
        totals = self._head.ops.log_sum_exp(take(rows, index.places("used")), self._head.weight)
        targets = take(self._head.weight, index.places("targets")).float()
        logits = (take(rows, index.places("rows")) * targets).sum(-1)
        # Rounded to the model's dtype, as a vocabulary head gives them.
        rounded: Tensor = logits.to(rows.dtype) - take(totals, index.places("totals"))
        return rounded

    def logits_lists(self) -> list[list[list[float]]]:
        """The logits of each sequence, at each of its positions; one copy for all of them."""
        groups = [logits for _, logits in self._groups]
        found: list[list[list[float]]] = [[[]] * len(read.logits) for read in self._reads]
        if not groups:
            return found
        flat = groups[0] if len(groups) == 1 else torch.cat([g.flatten() for g in groups])
        numbers = flat.flatten().tolist()
        start = 0
        for members, logits in self._groups:
            width = logits.shape[1]
            for member in members:
                read = self._reads[member]
                starts = [start + width * place for place in range(len(read.logits))]
                found[member] = [numbers[at : at + len(read.logit_ids)] for at in starts]
                start += width * len(read.logits)
        return found

    @cached_property
    def _views(self) -> list[Readout]:
        hidden = self.hidden.split([len(read.hidden) for read in self._reads])
        logprobs = self.logprobs.split([len(read.logprobs) for read in self._reads])
        logits = [
            self.rows.new_empty(len(read.logits), 0, dtype=torch.float32) for read in self._reads
        ]
        for members, group in self._groups:
            parts = group.float().split([len(self._reads[member].logits) for member in members])
            for member, part in zip(members, parts, strict=True):
                logits[member] = part[:, : len(self._reads[member].logit_ids)]
        return [
            Readout(hidden=h, logits=x, logprobs=p)
            for h, x, p in zip(hidden, logits, logprobs, strict=True)
        ]

    @cached_property
    def _groups(self) -> list[tuple[list[int], Tensor]]:
        """Sequences that read the same tokens, and the logits [n, k] of all their positions."""
        found = []
        for token_ids, members in self._members.items():
            head = self._kept[token_ids]
            if head is None:
                head = self._head.keep(token_ids, self._index.places(("tokens", token_ids)))
            rows = take(self.rows, self._index.places(("logits", token_ids)))
            found.append((members, self._head.ops.linear(rows, head)))
        return found

    @cached_property
    def _members(self) -> dict[tuple[int, ...], list[int]]:
        """Sequences by the tokens they read; tokens that others begin with count as theirs."""
        asked: dict[tuple[int, ...], list[int]] = {}
        for index, read in enumerate(self._reads):
            if read.logit_ids and read.logits:
                asked.setdefault(read.logit_ids, []).append(index)
        if len(asked) < 2:
            return asked
        groups: dict[tuple[int, ...], list[int]] = {}
        for token_ids in sorted(asked, key=len, reverse=True):
            longer = (other for other in groups if other[: len(token_ids)] == token_ids)
            groups.setdefault(next(longer, token_ids), []).extend(asked[token_ids])
        return groups

    @cached_property
    def _kept(self) -> dict[tuple[int, ...], Tensor | None]:
        """The head's rows by the tokens they belong to, None where they were not kept."""
        return {token_ids: self._head.kept(token_ids) for token_ids in self._members}

    @cached_property
    def _pairs(self) -> list[tuple[int, int]]:
        return [
            (lookup[at], token)
            for read, lookup in zip(self._reads, self._lookups, strict=True)
            for at, token in read.logprobs
        ]

    @cached_property
    def _index(self) -> _Index:
        lists: dict[object, list[int]] = {
            "hidden": [place for places in self.places for place in places]
        }
        for token_ids, members in self._members.items():
            lists["logits", token_ids] = [
                self._lookups[member][at] for member in members for at in self._reads[member].logits
            ]
            if self._kept[token_ids] is None:
                lists["tokens", token_ids] = list(token_ids)
        if self._pairs:
            used = sorted({row for row, _ in self._pairs})
            place = {row: index for index, row in enumerate(used)}
            lists["used"] = used
            lists["rows"] = [row for row, _ in self._pairs]
            lists["targets"] = [token for _, token in self._pairs]
            lists["totals"] = [place[row] for row, _ in self._pairs]
        return _Index(lists, self.rows.device)


class _Index:
    """Lists of places, all sent to the device in one copy; those that count on need none."""

    def __init__(self, lists: Mapping[object, Sequence[int]], device: torch.device) -> None:
        self._places: dict[object, Places] = {}
        sent: dict[object, Sequence[int]] = {}
        for name, places in lists.items():
            run = _run_of(places)
            if run is None:
                sent[name] = places
            else:
                self._places[name] = run
        if sent:
            every = [place for places in sent.values() for place in places]
            parts = on_device(every, device).split([len(places) for places in sent.values()])
            self._places.update(zip(sent, parts, strict=True))

    def places(self, name: object) -> Places:
        return self._places[name]


def _run_of(places: Sequence[int]) -> slice | None:
    """The places as a slice, None unless each is the one behind the one before."""
    if not places:
        return slice(0, 0)
    first, count = places[0], len(places)
    if places[-1] != first + count - 1 or list(places) != list(range(first, first + count)):
        return None
    return slice(first, first + count)


def take(rows: Tensor, index: Places) -> Tensor:
    """Rows by their places; a slice of them is no copy."""
    return rows[index] if isinstance(index, slice) else rows.index_select(0, index)


def on_device(places: Sequence[int], device: torch.device) -> Tensor:
    """Places [n] int64; pinned, or the copy would wait for the pass before it."""
    index = torch.tensor(places, dtype=torch.int64, pin_memory=device.type == "cuda")
    return index.to(device, non_blocking=True)
