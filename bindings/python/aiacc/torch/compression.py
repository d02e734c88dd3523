"""What travels in place of a tensor."""
from __future__ import annotations

from typing import Any, Tuple

import torch

from aiacc._arguments import refused


class Compressor:
    """compress gives what travels and a context; decompress makes the tensor of both again."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        raise NotImplementedError


class NoneCompressor(Compressor):
    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


class FP16Compressor(Compressor):
    """Floating-point tensors travel in 16 bits, and are summed in 32. The gradients of a DistributedOptimizer are converted by the
    library, which scales them so that nothing overflows; other tensors are cast."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        return (tensor.to(torch.float16) if tensor.dtype.is_floating_point else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor.to(ctx) if ctx.is_floating_point else tensor


class BF16Compressor(Compressor):
    """As FP16Compressor, in bfloat16: fewer digits, and the range of float32."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        return (tensor.to(torch.bfloat16) if tensor.dtype.is_floating_point else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor.to(ctx) if ctx.is_floating_point else tensor


class Compression:
    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def checked(compression: Any) -> Any:
    if not callable(getattr(compression, "compress", None)) or not callable(getattr(compression, "decompress", None)):
        raise refused("compression", compression, "Compression.none, Compression.fp16, Compression.bf16, with SGD in a DistributedOptimizer a DGC, or has compress and decompress as these do")
    return compression
