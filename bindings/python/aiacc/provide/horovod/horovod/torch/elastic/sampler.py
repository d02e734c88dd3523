"""The sampler that a change of the ranks may interrupt."""
from aiacc.torch.elastic.sampler import ElasticSampler

__all__ = ["ElasticSampler"]
