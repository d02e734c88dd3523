"""A sampler that continues an epoch where it was left, also with another number of ranks."""
from __future__ import annotations

import math
import random
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Set, Sized, Tuple

import torch.utils.data

from aiacc._horovod import basics


class Share(NamedTuple):
    """Which part of an epoch one rank takes, and what it has recorded of that."""
    rank: int
    ranks: int
    order: List[int]  # of all ranks: each takes every `ranks`-th
    recorded: Tuple[Tuple[int, int], ...]  # from where to where, in the part

    def of_others(self, others: Iterable[int]) -> Set[int]:
        """What other ranks have recorded, which take their batches in step with this one."""
        return {index for rank in others for begin, end in self.recorded for index in self.order[rank::self.ranks][begin:end]}


class ElasticSampler(torch.utils.data.Sampler):
    """Divides what an epoch has left among the ranks. Call record_batch after each batch, and set_epoch after each epoch."""

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = 0
        self.processed_indices: set = set()
        self.rank, self.num_replicas = 0, 1
        self.remaining_indices: List[int] = []
        self.num_samples = self.total_size = 0
        self._order: List[int] = []
        self._recorded: List[Tuple[int, int]] = []
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Another order, and nothing of it processed. At the end of an epoch, not at its begin: that forgets what was processed."""
        self.epoch = epoch
        self.processed_indices = set()
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """This rank's batch of that number was processed."""
        self.record_indices(self.get_indices(batch_idx, batch_size))
        self._recorded.append((batch_idx * batch_size, (batch_idx + 1) * batch_size))

    def record_indices(self, indices: Any) -> None:
        self.processed_indices.update(indices)

    def share(self) -> Share:
        return Share(self.rank, self.num_replicas, self._order, tuple(self._recorded))

    def get_indices(self, batch_idx: int, batch_size: int) -> List[int]:
        begin = batch_idx * batch_size
        return self.indices[begin:min(begin + batch_size, len(self.indices))]

    def state_dict(self) -> Dict[str, Any]:
        return {"epoch": self.epoch, "processed_indices": self.processed_indices}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """To continue from several ranks' states, join their processed_indices first (allgather_object)."""
        self.epoch = state_dict["epoch"]
        self.processed_indices = set(state_dict["processed_indices"])
        self.reset()

    def reset(self) -> None:
        """Divides anew what is left, among the present ranks."""
        self.num_replicas, self.rank = basics.size(), basics.rank()
        left = [index for index in range(len(self.dataset)) if index not in self.processed_indices]
        self.remaining_indices = left
        self.num_samples = math.ceil(len(left) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        self.indices: List[int] = []
        self._recorded = []
        self._divide()

    def _divide(self) -> None:
        indices = self.remaining_indices[:]
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(indices)  # equal on all ranks
        if indices:  # ranks get equally many: the first ones are repeated
            indices = (indices * math.ceil(self.total_size / len(indices)))[:self.total_size]
        self._order = indices
        self.indices = indices[self.rank:self.total_size:self.num_replicas]

    def __iter__(self) -> Iterator[int]:
        self._divide()
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples
