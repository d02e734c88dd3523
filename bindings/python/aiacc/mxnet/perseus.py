"""The names by which AIACC-Training 1 is known to MXNet scripts."""
from __future__ import annotations

import mxnet as mx

from aiacc.mxnet.sync_batch_norm import SyncBatchNorm, sync_batch_norm_symbol


def install() -> None:
    """mx.sym.contrib.PerseusSyncBatchNorm and mx.gluon.contrib.nn.PerseusSyncBatchNorm, which that version's MXNet had."""
    mx.sym.contrib.PerseusSyncBatchNorm = mx.contrib.sym.PerseusSyncBatchNorm = sync_batch_norm_symbol
    mx.gluon.contrib.nn.PerseusSyncBatchNorm = SyncBatchNorm
