"""A sampler that continues an epoch where it was left, also with another number of ranks."""
from __future__ import annotations

import math
import random
from typing import Any, Dict, Iterator, List, Set, Sized

import torch.utils.data

from aiacc._arguments import refused, whole
from aiacc._horovod import basics


class ElasticSampler(torch.utils.data.Sampler):  # type: ignore[type-arg]
    """Divides what an epoch has left among the ranks. Call record_batch after each batch, and set_epoch after each epoch.

    An epoch has one order on all ranks. Of what is left of it each takes every n-th sample, so while the ranks take their batches in step,
    those of one step are next to each other, and a number says what is processed."""

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        if not hasattr(dataset, "__len__"):
            raise refused("dataset", dataset, "a data set that has a length")
        self.dataset, self.shuffle, self.seed = dataset, shuffle, whole("seed", seed)
        self.epoch = self.processed_num = 0
        self.rank, self.num_replicas = 0, 1
        self.remaining_indices: List[int] = []
        self.indices: List[int] = []
        self.num_samples = self.total_size = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Another order, and nothing of it processed. At the end of an epoch, not at its begin: that forgets what was processed."""
        self.epoch, self.processed_num = epoch, 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Each rank has processed a batch of that size."""
        self.processed_num += batch_size * self.num_replicas

    @property
    def processed_indices(self) -> Set[int]:
        """What all ranks have processed of the epoch."""
        return set(self._order()[:self.processed_num])

    def state_dict(self) -> Dict[str, Any]:
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        self.epoch, self.processed_num = state_dict["epoch"], state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Divides anew what is left, among the present ranks."""
        self.num_replicas, self.rank = basics.size(), basics.rank()
        self.remaining_indices = self._order()[self.processed_num:]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        self.indices = self._own()

    def _order(self) -> List[int]:
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)  # equal on all ranks
        return order

    def _own(self) -> List[int]:
        left = self.remaining_indices[:]
        if left:  # ranks get equally many: the first ones are repeated
            left = (left * math.ceil(self.total_size / len(left)))[:self.total_size]
        return left[self.rank:self.total_size:self.num_replicas]

    def __iter__(self) -> Iterator[int]:
        self.indices = self._own()
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples
