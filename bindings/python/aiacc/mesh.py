"""The ranks of a group by coordinates: data, tensor, pipeline and expert parallel groups."""
from __future__ import annotations

import ctypes as c
from typing import Any, Optional, Sequence

from aiacc import _abi
from aiacc._arguments import refused, several, whole
from aiacc._library import library
from aiacc.groups import WORLD, Group, handle_of
from aiacc.runtime import int_array


def _name(axis: str) -> bytes:
    if not isinstance(axis, str):
        raise refused("an axis", axis, "one of the names in the mesh's order")
    return axis.encode()


def _names(axes: Sequence[str]) -> Any:
    return (c.c_char_p * len(axes))(*map(_name, axes))


class Mesh:
    """The ranks of `parent` as a grid. `order` names the axes as Megatron does, the first varies fastest; `sizes` has one for
    each, of which one may be 0: as many as the others leave.

        mesh = aiacc.Mesh("tp-dp-pp", [2, 0, 4])
        mesh.gradient_group("tp", "pp").allreduce(gradient_of_a_split_matrix)
        mesh.gradient_group("pp").allreduce(gradient_of_a_layer_norm)

    All ranks of the parent make the same mesh; nothing is exchanged. A group is made when it is first asked for and freed with
    the mesh (close, or the end of a with block)."""

    def __init__(self, order: str, sizes: Sequence[int], parent: Group = WORLD) -> None:
        if not isinstance(order, str):
            raise refused("order", order, "the names of axes, as tp-dp-pp")
        made, sizes = _abi.Handle(), several("sizes", sizes, "a list of a size for each axis")
        library().aiacc_mesh_create_ordered(handle_of("parent", parent), order.encode(), len(sizes), int_array(sizes, "sizes"), c.byref(made))
        self.handle = made.value
        self.order = order

    def group(self, *axes: str) -> Group:
        """This rank and those whose coordinates differ along these axes only."""
        made = _abi.Handle()
        library().aiacc_mesh_group(self.handle, len(axes), _names(axes), c.byref(made))
        return Group(made.value)

    def gradient_group(self, *split: str) -> Group:
        """Where the gradient of a parameter is reduced that is split along these axes, or differs along them."""
        made = _abi.Handle()
        library().aiacc_mesh_gradient_group(self.handle, len(split), _names(split), c.byref(made))
        return Group(made.value)

    def ends(self, axis: str) -> Optional[Group]:
        """The first and the last rank along an axis, as those of a pipeline that share an embedding; None for ranks between."""
        made = _abi.Handle()
        library().aiacc_mesh_ends_group(self.handle, _name(axis), c.byref(made))
        return Group(made.value) if made.value else None

    def shift(self, axis: str, distance: int) -> int:
        """The parent's number of the rank so much further along an axis; -1 beyond its ends."""
        found = c.c_int()
        library().aiacc_mesh_shift(self.handle, _name(axis), whole("distance", distance), c.byref(found))
        return found.value

    def coordinate(self, axis: str) -> int:
        """Of this rank: 0 to the axis' size - 1."""
        found = c.c_int()
        library().aiacc_mesh_coordinate(self.handle, _name(axis), c.byref(found))
        return found.value

    def close(self) -> None:
        """Frees the mesh and its groups. Local."""
        handle, self.handle = self.handle, 0
        if handle:
            library().aiacc_mesh_free(handle)

    def __enter__(self) -> Mesh:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<aiacc.Mesh {self.order}>"
