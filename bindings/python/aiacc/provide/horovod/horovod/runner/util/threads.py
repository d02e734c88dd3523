"""Functions on threads of their own."""
import contextlib
import threading


def in_thread(target, args=(), name=None, daemon=True, silent=False):
    """The started thread. `silent`: what the function raises is dropped."""
    if not isinstance(args, tuple):
        raise ValueError(f"args is of {type(args).__name__}: it is a tuple, (one,) for one argument")

    def run():
        with contextlib.suppress(Exception) if silent else contextlib.nullcontext():
            target(*args)
    thread = threading.Thread(target=run, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(event, func, args=(), stop=None, check_stop_interval_s=1.0, daemon=True, silent=False):
    """Calls the function once the event is set, unless `stop` is set first."""
    if event is None:
        raise ValueError("event is None: it is a threading.Event")
    if not isinstance(args, tuple):
        raise ValueError(f"args is of {type(args).__name__}: it is a tuple, (one,) for one argument")
    if stop is None and not daemon:
        raise ValueError("stop is None: a thread that is no daemon needs an event that stops it")

    def wait():
        while not event.wait(check_stop_interval_s if stop is not None else None):
            if stop.is_set():
                return
        if stop is None or not stop.is_set():
            func(*args)
    return in_thread(wait, daemon=daemon, silent=silent)
