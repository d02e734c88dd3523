"""Which operations ranks run next, where they have started theirs in different orders.

Each rank says what it has started and not yet run; every rank then comes to the same conclusion from what all have said. Operations
are told apart by their kind and name; of several with the same, as those without a name are, the oldest of each rank belong together.

What a program waits for may run elsewhere: an allreduce on a gradient engine (named.py), whose key says which call of its name it is. It has
no place in the order, and ends once all ranks have started it.
"""
from __future__ import annotations

import collections
import json
from typing import Any, Counter, List, NamedTuple, Optional, Sequence, Tuple

Key = Tuple[Any, ...]  # kind, name; of an allreduce on an engine its call, too


class Said(NamedTuple):
    """By one rank. Nothing is pending if what it asked about has ended meanwhile."""
    pending: List[Key]  # oldest first
    waits: Optional[int]  # for which of these its program waits; None: the program goes on, and may start others
    engine: int = 0  # the number of the engine on which allreduces run elsewhere


def encode(said: Said) -> bytes:
    return json.dumps(said).encode()


def decode(data: bytes) -> Said:
    pending, waits, engine = json.loads(data)
    return Said([tuple(tuple(part) if isinstance(part, list) else part for part in key) for key in pending], waits, engine)


def on_engine(key: Key) -> bool:
    return len(key) > 2


def common(everyone: Sequence[Said]) -> List[Key]:
    """What all ranks have started, in the order of the first of them."""
    left: Counter[Key] = collections.Counter(everyone[0].pending)
    for said in everyone[1:]:
        left &= collections.Counter(said.pending)
    order = []
    for key in everyone[0].pending:
        if left[key] > 0:
            left[key] -= 1
            order.append(key)
    return order


def all_wait(everyone: Sequence[Said]) -> bool:
    """Without anything in common they would wait forever."""
    return all(said.waits is not None for said in everyone)


def waited_elsewhere(everyone: Sequence[Said]) -> List[Key]:
    return [said.pending[said.waits] for said in everyone if said.waits is not None and on_engine(said.pending[said.waits])]


def contradiction(everyone: Sequence[Tuple[int, Said]]) -> str:
    """Ranks, and what they said: what they wait for, which two of them differ in."""
    waited = [(rank, said.pending[said.waits or 0]) for rank, said in everyone]
    first, one = waited[0]
    rank, other = next((said for said in waited if said[1] != one), waited[-1])
    (kind, name), (other_kind, other_name) = one[:2], other[:2]
    what = f"{kind} '{name}'" if name else kind
    if kind != other_kind:
        return f"ranks disagree about {what}: its operation is {kind} on rank {first} and {other_kind} on rank {rank}"
    if name == other_name and on_engine(one) != on_engine(other):
        by_itself, not_so = (first, rank) if on_engine(one) else (rank, first)
        return f"ranks disagree about {what}: it is grouped, or reduces by Adasum, on rank {not_so} and not on rank {by_itself}"
    return f"ranks disagree about {what}: its name is {name} on rank {first} and {other_name} on rank {rank}"
