"""State, ObjectState, run_fn and notification_manager."""
from aiacc._horovod.elastic import HostUpdateResult, ObjectState, State, notification_manager, run_fn

__all__ = ["HostUpdateResult", "ObjectState", "State", "notification_manager", "run_fn"]
