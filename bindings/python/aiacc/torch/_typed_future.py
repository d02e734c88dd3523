"""A future whose value is a list of tensors for C++ too.

What Python gives to a torch.futures.Future is an object of Python for C++, and DDP's own hook of C++ that compresses to 16 bits asks its
future for a list of tensors. TorchScript's futures have one: a task of TorchScript waits for a future of Python, without a thread, and
returns the tensors."""
from __future__ import annotations

from typing import Any, List, Optional

import torch

_LONGEST = 500  # characters of a failure's sentence, which travels in a tensor, as Python may give the script nothing else later
_SOURCE = """
def after(ended: Future[int], failure: Tensor, tensors: List[Tensor]) -> List[Tensor]:
    torch.jit.wait(ended)
    codes: List[int] = failure.tolist()
    sentence = ""
    for code in codes:
        if code != 0:
            sentence = sentence + chr(code)
    if len(sentence) > 0:
        raise RuntimeError(sentence)
    return tensors

def begin(ended: Future[int], failure: Tensor, tensors: List[Tensor]) -> Future[List[Tensor]]:
    return torch.jit.fork(after, ended, failure, tensors)
"""
_script: Any = None


class TypedFuture:
    """`future` for users, which `complete` ends."""

    def __init__(self, tensors: List[torch.Tensor]) -> None:
        global _script
        if _script is None:
            _script = torch.jit.CompilationUnit(_SOURCE)
        self._ended: torch.futures.Future[Any] = torch.futures.Future()
        self._failure = torch.zeros(_LONGEST, dtype=torch.int64, device="cpu")
        self.future = _script.begin(self._ended, self._failure, tensors)

    def complete(self, results: Any, error: Optional[Exception]) -> None:
        """What the users attached runs on a thread of TorchScript's."""
        if error is not None:
            codes = [ord(one) for one in str(error)[:_LONGEST]] or [ord("?")]
            with torch.inference_mode():
                self._failure[:len(codes)] = torch.tensor(codes, device="cpu")
        self._ended.set_result(0)
