"""Structures and prototypes of aiacc.h. One line a function, in the header's order."""
from __future__ import annotations

import ctypes as c
from typing import Any, Dict, Tuple

from aiacc.errors import check

Handle = c.c_uint64
HandlePointer = c.POINTER(Handle)
Sizes = c.POINTER(c.c_size_t)
Int = c.POINTER(c.c_int)
P = c.c_void_p

PUT = c.CFUNCTYPE(c.c_int, P, c.c_char_p, P, c.c_size_t)
GET = c.CFUNCTYPE(c.c_int, P, c.c_char_p, P, c.c_size_t, Sizes, c.c_int64)
WAIT = c.CFUNCTYPE(c.c_int, P, c.POINTER(c.c_char_p), c.c_size_t, c.c_int64)
CALLBACK = c.CFUNCTYPE(None, c.c_int, c.c_char_p, P)


class Store(c.Structure):
    _fields_ = [("size", c.c_size_t), ("arg", P), ("put", PUT), ("get", GET), ("wait", WAIT)]


class InitAttr(c.Structure):
    _fields_ = [("size", c.c_size_t), ("world_size_set", c.c_int32), ("rank", c.c_int32), ("world_size", c.c_int32),
                ("timeout_ms", c.c_int32), ("store", c.POINTER(Store)), ("job", c.c_char_p)]


class Attr(c.Structure):
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("timeout_ms", c.c_int64), ("prescale", c.c_double), ("postscale", c.c_double),
                ("priority", c.c_int32), ("traffic_class", c.c_int32), ("callback", CALLBACK), ("callback_arg", P), ("memory_kind", c.c_int32)]


class GroupAttr(c.Structure):
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("key", c.c_uint64), ("timeout_ms", c.c_int64), ("traffic_class", c.c_int32)]


class GradientAttr(c.Structure):
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("fusion_bytes", c.c_size_t), ("in_flight", c.c_int32), ("schedule_steps", c.c_int32),
                ("timeout_ms", c.c_int64), ("wire", c.c_int), ("nan_check", c.c_int32), ("tune", c.c_int32)]


class Tensor(c.Structure):
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("count", c.c_size_t), ("dtype", c.c_int), ("op", c.c_int), ("prescale", c.c_double),
                ("postscale", c.c_double), ("wire", c.c_int), ("priority", c.c_int32), ("row_elements", c.c_size_t)]


class GradientStats(c.Structure):
    _fields_ = [("size", c.c_size_t), *((name, c.c_uint64) for name in (
        "steps", "rounds", "negotiation_messages", "launches", "tensors", "bytes", "packed_bytes", "breaks")), ("scheduled", c.c_int32),
                ("wire_bytes", c.c_uint64), ("fusion_bytes", c.c_uint64), ("in_flight", c.c_int32), ("tuning", c.c_int32),
                ("tune_steps", c.c_uint64), ("tune_searches", c.c_uint64)]


class SyncbnAttr(c.Structure):
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("timeout_ms", c.c_int64)]


class SyncbnBatch(c.Structure):
    _fields_ = [("size", c.c_size_t), ("samples", c.c_size_t), ("channels", c.c_size_t), ("positions", c.c_size_t), ("dtype", c.c_int), ("layout", c.c_int32)]


class SyncbnLayer(c.Structure):
    _fields_ = [("size", c.c_size_t), *((name, P) for name in ("weight", "bias", "running_mean", "running_variance")), ("epsilon", c.c_double),
                ("momentum", c.c_double), ("convention", c.c_int32)]


class KvKey(c.Structure):
    _fields_ = [("name", c.c_char_p), ("number", c.c_int64)]


class KvAttr(c.Structure):
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("mode", c.c_int32), ("wire", c.c_int32), ("staleness", c.c_uint64),
                ("threshold", c.c_double), ("split_elements", c.c_size_t), ("n_servers", c.c_size_t), ("servers", Int),
                ("n_workers", c.c_size_t), ("workers", Int), ("timeout_ms", c.c_int64), ("replicas", c.c_int32), ("traffic_class", c.c_int32)]


KV_UPDATE = c.CFUNCTYPE(c.c_int, P, KvKey, c.c_size_t, c.c_size_t, c.c_int, P, P)


class KvUpdater(c.Structure):
    _fields_ = [("size", c.c_size_t), ("kind", c.c_int32),
                *((name, c.c_double) for name in ("rate", "momentum", "beta1", "beta2", "epsilon", "weight_decay", "rescale", "clip")),
                ("update", KV_UPDATE), ("arg", P)]


class SoftmaxShard(c.Structure):
    _fields_ = [("size", c.c_size_t), ("rows", c.c_size_t), ("all_classes", c.c_size_t), ("classes", c.c_size_t), ("first_class", c.c_int64),
                ("ids", P), ("dtype", c.c_int), ("margin_kind", c.c_int32), ("margin", c.c_double), ("scale", c.c_double),
                ("gradient_scale", c.c_double)]


_END = (Handle, c.POINTER(Attr), HandlePointer)  # group, attr, request
_BLOCK = (P, c.c_size_t, c.c_int)  # buffer, count, dtype

# Functions that return a status.
_FUNCTIONS: Dict[str, Tuple[Any, ...]] = {
    "init": (c.POINTER(InitAttr),),
    "finalize": (),
    "hosts_updated": (Int,),
    "rank": (Handle, Int),
    "size": (Handle, Int),
    "local_rank": (Handle, Int),
    "local_size": (Handle, Int),
    "host_index": (Handle, Int),
    "group_create": (Handle, c.c_size_t, Int, c.POINTER(GroupAttr), HandlePointer),
    "group_split": (Handle, c.c_int, c.c_int, c.POINTER(GroupAttr), HandlePointer),
    "group_free": (Handle,),
    "group_abort": (Handle, c.c_char_p),
    "group_translate": (Handle, c.c_size_t, Int, Handle, Int),
    "group_sequence": (Handle, c.POINTER(c.c_uint64)),
    "mesh_create_ordered": (Handle, c.c_char_p, c.c_size_t, Int, HandlePointer),
    "mesh_group": (Handle, c.c_size_t, c.POINTER(c.c_char_p), HandlePointer),
    "mesh_gradient_group": (Handle, c.c_size_t, c.POINTER(c.c_char_p), HandlePointer),
    "mesh_ends_group": (Handle, c.c_char_p, HandlePointer),
    "mesh_shift": (Handle, c.c_char_p, c.c_int, Int),
    "mesh_coordinate": (Handle, c.c_char_p, Int),
    "mesh_free": (Handle,),
    "allreduce": (P, *_BLOCK, c.c_int, *_END),
    "allreduce_grouped": (c.c_size_t, c.POINTER(P), c.POINTER(P), Sizes, c.c_int, c.c_int, *_END),
    "reduce": (P, *_BLOCK, c.c_int, c.c_int, *_END),
    "broadcast": (*_BLOCK, c.c_int, *_END),
    "allgather": (P, *_BLOCK, *_END),
    "allgatherv": (P, c.c_size_t, P, Sizes, Sizes, c.c_int, *_END),
    "reduce_scatter": (P, *_BLOCK, c.c_int, *_END),
    "reduce_scatterv": (P, P, Sizes, c.c_int, c.c_int, *_END),
    "alltoall": (P, *_BLOCK, *_END),
    "alltoallv": (P, Sizes, Sizes, P, Sizes, Sizes, c.c_int, *_END),
    "gather": (P, *_BLOCK, c.c_int, *_END),
    "gatherv": (P, c.c_size_t, P, Sizes, Sizes, c.c_int, c.c_int, *_END),
    "scatter": (P, *_BLOCK, c.c_int, *_END),
    "scatterv": (P, Sizes, Sizes, P, c.c_size_t, c.c_int, c.c_int, *_END),
    "barrier": _END,
    "send": (*_BLOCK, c.c_int, c.c_uint32, *_END),
    "recv": (*_BLOCK, c.c_int, c.c_uint32, *_END),
    "recv_any": (*_BLOCK, Int, c.c_uint32, *_END),
    "sendrecv": (P, c.c_size_t, c.c_int, c.c_uint32, P, c.c_size_t, c.c_int, c.c_uint32, c.c_int, *_END),
    "mem_alloc": (Handle, c.c_size_t, c.POINTER(P)),
    "mem_free": (P,),
    "info": (c.c_char_p, c.c_size_t, Sizes),
    "metrics": (Handle, c.c_char_p, c.c_size_t, Sizes),
    "timeline_start": (Handle, c.c_char_p),
    "timeline_stop": (Handle,),
    "gradient_create": (Handle, c.POINTER(GradientAttr), HandlePointer),
    "gradient_add": (Handle, c.c_size_t, c.POINTER(Tensor), c.POINTER(c.c_uint32)),
    "gradient_memory": (Handle, c.c_uint32, c.POINTER(P)),
    "gradient_in_place": (Handle, c.c_uint32, Int),
    "gradient_submit": (Handle, c.c_uint32, P, P, HandlePointer),
    "gradient_submit_rows": (Handle, c.c_uint32, c.c_size_t, P, P, HandlePointer),
    "gradient_rows": (Handle, c.c_uint32, c.POINTER(c.c_size_t), c.POINTER(P), c.POINTER(P)),
    "gradient_flush": (Handle,),
    "gradient_wait": (Handle,),
    "gradient_wait_for": (Handle, c.c_uint32, c.c_int64),
    "gradient_join": (Handle, Int),
    "gradient_get_stats": (Handle, c.POINTER(GradientStats)),
    "gradient_free": (Handle,),
    "kv_create": (Handle, c.POINTER(KvAttr), HandlePointer),
    "kv_roles": (Handle, Int, Int, Int, Int),
    "kv_init": (Handle, KvKey, c.c_int, c.c_size_t, c.c_size_t, P, c.POINTER(Attr), HandlePointer),
    "kv_push": (Handle, KvKey, c.c_size_t, P, c.POINTER(Attr), HandlePointer),
    "kv_pull": (Handle, KvKey, c.c_size_t, P, c.POINTER(Attr), HandlePointer),
    "kv_pushpull": (Handle, KvKey, c.c_size_t, P, P, c.POINTER(Attr), HandlePointer),
    "kv_push_rows": (Handle, KvKey, c.c_size_t, c.POINTER(c.c_int64), P, c.POINTER(Attr), HandlePointer),
    "kv_pull_rows": (Handle, KvKey, c.c_size_t, c.POINTER(c.c_int64), P, c.POINTER(Attr), HandlePointer),
    "kv_set_updater": (Handle, c.POINTER(KvUpdater)),
    "kv_set_wire": (Handle, c.c_int, c.c_double),
    "kv_save": (Handle, c.c_char_p),
    "kv_load": (Handle, c.c_char_p),
    "kv_free": (Handle,),
    "softmax_loss": (c.POINTER(SoftmaxShard), P, P, P, Handle, c.POINTER(Attr)),
    "softmax_split": (c.c_size_t, Handle, c.POINTER(c.c_int64), Sizes),
    "softmax_sample": (c.c_int64, c.c_size_t, P, c.c_size_t, c.c_size_t, c.c_uint64, P, Sizes),
    "syncbn_create": (Handle, c.POINTER(SyncbnAttr), HandlePointer),
    "syncbn_forward": (Handle, c.POINTER(SyncbnBatch), c.POINTER(SyncbnLayer), P, P, P),
    "syncbn_backward": (Handle, c.POINTER(SyncbnBatch), P, P, P, P, P, P, P),
    "syncbn_join": (Handle,),
    "syncbn_abort": (Handle, c.c_char_p),
    "syncbn_free": (Handle,),
}
# Functions whose status says more than well or not, or that return no status.
_OTHERS: Dict[str, Tuple[Any, Tuple[Any, ...]]] = {
    "test": (c.c_int, (Handle,)),
    "wait": (c.c_int, (Handle,)),
    "wait_for": (c.c_int, (Handle, c.c_int64)),
    "wait_any": (c.c_int, (c.c_size_t, HandlePointer, c.c_int64, Sizes)),
    "request_free": (c.c_int, (Handle,)),
    "initialized": (c.c_int, ()),
    "last_error": (c.c_char_p, ()),
    "last_error_rank": (c.c_int, ()),
    "status_name": (c.c_char_p, (c.c_int,)),
}


def _checked(status: int, function: Any, _: Any) -> int:
    return check(function.library, status)


def declare(library: Any) -> None:
    for name, types in _FUNCTIONS.items():
        function = getattr(library, f"aiacc_{name}")
        function.argtypes, function.restype, function.errcheck, function.library = types, c.c_int, _checked, library
    for name, (result, types) in _OTHERS.items():
        function = getattr(library, f"aiacc_{name}")
        function.argtypes, function.restype = types, result
