"""Learning rates as functions of the step."""
from __future__ import annotations

from typing import Any

from aiacc._arguments import number


def smooth_exponential_decay(warm_up_learning_rate: float, warm_up_step: int, init_learning_rate: float, global_step: Any, decay_steps: float,
                             decay_rate: float) -> float:
    """The learning rate of step `global_step` (a number, or a tensor of one), from 0.

    It goes in a straight line from `warm_up_learning_rate` at step 0 to `init_learning_rate` at `warm_up_step`, and from there
    decays by the factor `decay_rate` every `decay_steps` steps, a little at each step. The arguments are PAISoar's; its formula
    was never published, and this one is what its documentation says of it.
    """
    step = number("global_step", global_step)
    for name, value in (("warm_up_learning_rate", warm_up_learning_rate), ("warm_up_step", warm_up_step), ("init_learning_rate", init_learning_rate),
                        ("decay_steps", decay_steps), ("decay_rate", decay_rate)):
        number(name, value)
    if step < 0 or warm_up_step < 0 or decay_steps <= 0 or decay_rate <= 0:
        raise ValueError(f"global_step ({global_step}) and warm_up_step ({warm_up_step}) are 0 or more, decay_steps ({decay_steps}) and "
                         f"decay_rate ({decay_rate}) above 0")
    if step < warm_up_step:
        return warm_up_learning_rate + (init_learning_rate - warm_up_learning_rate) * step / warm_up_step
    return init_learning_rate * decay_rate ** ((step - warm_up_step) / decay_steps)


__all__ = ["smooth_exponential_decay"]
