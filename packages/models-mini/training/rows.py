"""How a candidate reads the state, for each question type, and rows of tokens laid out for it."""

from dataclasses import dataclass

import numpy as np

from models_mini.readout import NOBODY, Readout

PADDING = -2  # not NOBODY: a token that sees nobody else must not see the padding


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of tokens: the state as segment 0, then its candidates as segments 1, 2, ...

    All [R, T] int64. A token sees its own segment, and `parents` from layer `layers` on.
    `lengths` [R, S] are tokens by segment.
    """

    token_ids: np.ndarray
    kinds: np.ndarray
    positions: np.ndarray
    segments: np.ndarray
    parents: np.ndarray
    layers: np.ndarray
    lengths: np.ndarray


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step needs: chunks of rows, and where each item's logits stand in them.

    `places` [B, C] int64 index the flat (row, candidate) logits of all chunks; absent candidates
    point to 0 and are False in `present`. `types` [B], `targets` [B] int64. A noul of one text has
    its place in column 1; column 0 then is a constant zero (`is_single`).
    """

    chunks: tuple[Rows, ...]
    row_types: tuple[np.ndarray, ...]
    places: np.ndarray
    present: np.ndarray
    is_single: np.ndarray
    types: np.ndarray
    targets: np.ndarray


def make_batch(items, ids_of, readouts, types, chunks=2):
    """Lay items out; `ids_of` gives a text's token ids with both markers."""
    rows, homes = [], []
    for index, item in enumerate(items):
        readout = Readout.parse(readouts[item.type])
        texts = (item.asked,) if readout.is_single else item.candidates
        state, candidates = ids_of(item.state), [ids_of(text) for text in texts]
        kind = types.index(item.type)
        groups = [[one] for one in candidates] if readout.is_joint else [candidates]
        homes.append((readout.is_single, []))
        for group in groups:
            for place in range(len(group)):
                homes[index][1].append((len(rows), place))
            rows.append((kind, readout, state, group))
    return _finish(items, rows, homes, types, chunks)


def _finish(items, rows, homes, types, chunks):
    size = [len(state) + sum(map(len, group)) for _, _, state, group in rows]
    order = sorted(range(len(rows)), key=size.__getitem__)
    parts = [part.tolist() for part in np.array_split(order, min(chunks, len(rows)))]
    made, first, offset = [], {}, 0
    for part in parts:
        width = max(len(rows[index][3]) for index in part)
        made.append(_rows([rows[index] for index in part], width))
        for position, index in enumerate(part):
            first[index] = offset + position * width
        offset += len(part) * width
    columns = max(2 if single else len(home) for single, home in homes)
    places = np.zeros((len(items), columns), np.int64)
    present = np.zeros((len(items), columns), bool)
    for index, (single, home) in enumerate(homes):
        found = [first[row] + place for row, place in home]
        if single:
            found = [found[0], found[0]]
        places[index, : len(found)] = found
        present[index, : len(found)] = True
    return Batch(
        chunks=tuple(made),
        row_types=tuple(np.array([rows[index][0] for index in part]) for part in parts),
        places=places,
        present=present,
        is_single=np.array([single for single, _ in homes]),
        types=np.array([types.index(item.type) for item in items]),
        targets=np.array([item.target for item in items]),
    )


def _rows(rows, width):
    length = max(len(state) + sum(map(len, group)) for _, _, state, group in rows)
    shape = (len(rows), length)
    token_ids, kinds, positions = (np.zeros(shape, np.int64) for _ in range(3))
    segments, parents = np.full(shape, PADDING, np.int64), np.full(shape, NOBODY, np.int64)
    layers = np.zeros(shape, np.int64)
    lengths = np.zeros((len(rows), width + 1), np.int64)
    for index, (_, readout, state, group) in enumerate(rows):
        at = 0
        for segment, ids in enumerate((state, *group)):
            here = slice(at, at + len(ids))
            token_ids[index, here] = ids
            positions[index, here] = range(len(ids))
            segments[index, here] = segment
            kinds[index, here] = readout.kind if segment else 0
            parents[index, here] = readout.parent_of(segment)
            layers[index, here] = readout.layer
            lengths[index, segment] = len(ids)
            at += len(ids)
    return Rows(token_ids, kinds, positions, segments, parents, layers, lengths)
