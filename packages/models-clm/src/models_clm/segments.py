"""Sequences packed end to end, the beginnings they share laid down once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# Below this, sharing saves less than its bookkeeping costs.
MIN_SHARED = 64
# Rows of short segments that attend in one masked product.
BLOCK_ROWS = 512


@dataclass(frozen=True, slots=True)
class Block:
    """Rows `begin` to `end` attend to rows `prefix` and, as `mask` [rows, keys] allows, themselves.

    Without a mask they are one sequence, causal.
    """

    begin: int
    end: int
    prefix: range
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class Packed:
    """A stream of T tokens: token_ids and positions [T] int64; reads [N], each sequence's last row.

    Blocks cover all rows in order.
    """

    token_ids: Tensor
    positions: Tensor
    reads: Tensor
    blocks: tuple[Block, ...]


@dataclass(slots=True)
class _Group:
    """Sequences with `shared` tokens in common, each at least one longer."""

    members: list[int]
    shared: int = 0


def pack(sequences: Sequence[Sequence[int]], device: torch.device | str = "cpu") -> Packed:
    """Lay out sequences of at least one token, in whatever order shares most."""
    token_ids: list[int] = []
    positions: list[int] = []
    reads = [0] * len(sequences)
    blocks: list[Block] = []
    loners: list[int] = []

    def lay(tokens: Sequence[int], start: int) -> int:
        token_ids.extend(tokens)
        positions.extend(range(start, start + len(tokens)))
        return len(tokens)

    for group in _groups(sequences):
        if len(group.members) == 1:
            loners += group.members
            continue
        root = range(len(token_ids), len(token_ids) + group.shared)
        lay(sequences[group.members[0]][: group.shared], 0)
        blocks.append(Block(root.start, root.stop, range(0), None))
        for run in _runs(group.members, [len(s) - group.shared for s in sequences]):
            begin = len(token_ids)
            lengths = []
            for member in run:
                lengths.append(lay(sequences[member][group.shared :], group.shared))
                reads[member] = len(token_ids) - 1
            blocks.append(_block(begin, lengths, root, device))
    for run in _runs(loners, [len(sequence) for sequence in sequences]):
        begin = len(token_ids)
        lengths = []
        for member in run:
            lengths.append(lay(sequences[member], 0))
            reads[member] = len(token_ids) - 1
        blocks.append(_block(begin, lengths, range(0), device))
    return Packed(
        token_ids=torch.tensor(token_ids, device=device),
        positions=torch.tensor(positions, device=device),
        reads=torch.tensor(reads, device=device),
        blocks=tuple(blocks),
    )


def shared_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens that both begin with, one of each left over; 0 where it is not worth sharing."""
    most = min(len(one), len(other)) - 1
    if most < MIN_SHARED or one[:MIN_SHARED] != other[:MIN_SHARED]:
        return 0
    least = MIN_SHARED
    while least < most:  # comparing slices is far faster than comparing tokens in a loop
        middle = (least + most + 1) // 2
        if one[least:middle] == other[least:middle]:
            least = middle
        else:
            most = middle - 1
    return least


def _groups(sequences: Sequence[Sequence[int]]) -> list[_Group]:
    """Neighbours in lexical order, joined as long as that saves more tokens than it loses."""
    groups: list[_Group] = []
    for index in sorted(range(len(sequences)), key=lambda index: list(sequences[index])):
        if groups:
            group = groups[-1]
            shared = shared_length(sequences[group.members[0]], sequences[index])
            if len(group.members) > 1:
                shared = min(shared, group.shared)
            count = len(group.members)
            if count * shared > (count - 1) * group.shared:
                group.members.append(index)
                group.shared = shared
                continue
        groups.append(_Group([index]))
    return groups


def _runs(members: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
    """Consecutive members of at most BLOCK_ROWS rows together, a longer one alone."""
    runs: list[list[int]] = []
    rows = 0
    for member in members:
        if not runs or rows + lengths[member] > BLOCK_ROWS:
            runs.append([])
            rows = 0
        runs[-1].append(member)
        rows += lengths[member]
    return runs


def _block(begin: int, lengths: Sequence[int], prefix: range, device: torch.device | str) -> Block:
    rows = sum(lengths)
    if len(lengths) == 1 and not prefix:
        return Block(begin, begin + rows, prefix, None)
    owner = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    row = torch.arange(rows)
    own = (owner[:, None] == owner) & (row[:, None] >= row)
    mask = torch.cat([torch.ones(rows, len(prefix), dtype=torch.bool), own], dim=1)
    return Block(begin, begin + rows, prefix, mask.to(device))
