"""horovod.runner.run is horovod.run."""
from horovod import run

__all__ = ["run"]
