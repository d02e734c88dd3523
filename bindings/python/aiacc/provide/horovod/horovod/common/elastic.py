"""State, ObjectState and run_fn."""
from aiacc._horovod.elastic import HostUpdateResult, ObjectState, State, run_fn

__all__ = ["HostUpdateResult", "ObjectState", "State", "run_fn"]
