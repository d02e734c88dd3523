"""What travels in place of a gradient. The library converts gradients of float32, and sums in float32."""
from __future__ import annotations

from typing import Any, Tuple

from mxnet.ndarray import NDArray

from aiacc.gradients import Wire


class NoneCompressor:
    wire = Wire.DEFAULT

    @staticmethod
    def compress(tensor: NDArray) -> Tuple[NDArray, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: NDArray, ctx: Any) -> NDArray:
        return tensor


class FP16Compressor:
    """Gradients of float32 travel in 16 bits, scaled so that nothing overflows. compress and decompress cast."""
    wire = Wire.FLOAT16

    @staticmethod
    def compress(tensor: NDArray) -> Tuple[NDArray, Any]:
        return (tensor.astype("float16") if "float" in str(tensor.dtype) else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: NDArray, ctx: Any) -> NDArray:
        return tensor.astype(ctx) if "float" in str(ctx) else tensor


class Compression:
    none = NoneCompressor
    fp16 = FP16Compressor
