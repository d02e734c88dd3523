"""torch.compile and the back end: DistributedDataParallel calls it from frames that Dynamo traces, and it is nothing to compile."""
from __future__ import annotations

import functools
import sys
from typing import Any

import torch

_frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)  # torch >= 2.0


def _skip(code: Any) -> None:
    """Dynamo does not trace frames of this code."""
    if hasattr(_frames, "set_code_exec_strategy"):  # torch >= 2.7
        _frames.set_code_exec_strategy(code, _frames._FrameExecStrategy(_frames._FrameAction.SKIP, _frames._FrameAction.DEFAULT))
    elif hasattr(_frames, "skip_code"):
        _frames.skip_code(code)


def never_compiled(function: Any) -> Any:
    """Runs it, and what it calls, outside of Dynamo. torch.compiler.disable does it too, but imports Dynamo, which takes seconds."""
    if _frames is None:
        return function

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return function(*arguments, **keywords)
        before = _frames.set_eval_frame(None)
        try:
            return function(*arguments, **keywords)
        finally:
            _frames.set_eval_frame(before)
    _skip(call.__code__)  # type: ignore[attr-defined]
    call._torchdynamo_disable = True  # type: ignore[attr-defined]  # nor calls of it
    return call
