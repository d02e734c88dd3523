"""What travels in place of a gradient. The library converts gradients of float32, and sums in float32."""
from __future__ import annotations

from typing import Any, Tuple

import tensorflow as tf

from aiacc.gradients import Wire


class Compressor:
    """A program's own has these two, and travels as what `compress` returns."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> Tuple[tf.Tensor, Any]:
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        raise NotImplementedError


class NoneCompressor(Compressor):
    wire = Wire.DEFAULT

    @staticmethod
    def compress(tensor: tf.Tensor) -> Tuple[tf.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        return tensor


class FP16Compressor(Compressor):
    """Gradients of float32 travel in 16 bits, scaled so that nothing overflows. compress and decompress cast."""
    wire = Wire.FLOAT16

    @staticmethod
    def compress(tensor: tf.Tensor) -> Tuple[tf.Tensor, Any]:
        return (tf.cast(tensor, tf.float16) if tensor.dtype.is_floating else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        return tf.cast(tensor, ctx) if ctx.is_floating else tensor


class Compression:
    none = NoneCompressor
    fp16 = FP16Compressor


def checked(compression: Any) -> Any:
    if not callable(getattr(compression, "compress", None)) or not callable(getattr(compression, "decompress", None)):
        raise ValueError(f"compression is {compression!r}: it is Compression.none, Compression.fp16 or a class with compress and decompress")
    return compression
