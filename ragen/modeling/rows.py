"""Looking rows up so that the gradient is the same in every run, whatever the number of threads."""

from __future__ import annotations

from torch import Tensor


def take_rows(tensor: Tensor, index: Tensor) -> Tensor:
    """`tensor[index]` along the first dimension; the gradients of a row that is taken several times add up in order.

    On the CPU the gradient of `tensor[index]` adds them as the threads happen to come by, so its last bits change
    from run to run; that of `index_select` is added in the order of the index. On a GPU it is the other way round.

    tensor [5, 6, 7], index [2, 0, 2] -> [7, 5, 7]; gradients [1, 2, 4] -> [2, 0, 5]
    """
    return tensor[index] if tensor.is_cuda else tensor.index_select(0, index)
