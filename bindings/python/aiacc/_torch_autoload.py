"""Called by torch, which finds it by its entry point: registers the back end of torch.distributed, without loading libaiacc."""
from __future__ import annotations

from typing import Any


def register() -> None:
    """Never fails: a torch that works without this package must work with it."""
    try:
        import torch.distributed as dist
        if not dist.is_available() or hasattr(dist.Backend, "AIACC"):
            return
        backends: Any = dist.Backend  # torch 1 has no `devices`
        backends.register_backend("aiacc", _create, extended_api=True, devices=["cpu"])
    except Exception:  # noqa: BLE001: then `import aiacc.torch` says what is wrong
        return


def _create(options: Any, more: Any = None) -> Any:
    from aiacc.torch import backend
    return backend.create(options, more)
