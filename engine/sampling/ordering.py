"""The best token and the k best tokens of a row, in one well-defined order: larger value first, then the smaller id."""

import torch

_SIGN = 0x7FFFFFFF
_ID_BITS = 32


def best_tokens(values: torch.Tensor, k: int) -> torch.Tensor:
    """Return int64 [num_rows, k]: ids of the k largest of float32 values [num_rows, vocab_size], best first.

    `torch.topk` leaves open which of several equal values it takes. Here (value, -id) is folded into one 64-bit
    integer, so the answer is unique and can't depend on k, on the row or on the device. NaN is not allowed.
    """
    bits = (values + 0.0).view(torch.int32)  # + 0.0 turns -0.0 into 0.0
    rank = torch.where(bits < 0, bits ^ _SIGN, bits).to(torch.int64)
    ids = torch.arange(values.shape[-1], device=values.device)
    keys = (rank << _ID_BITS) | ((1 << _ID_BITS) - 1 - ids)
    top = torch.topk(keys, k, dim=-1, sorted=True).values
    return (1 << _ID_BITS) - 1 - (top & ((1 << _ID_BITS) - 1))


def best_token(values: torch.Tensor) -> torch.Tensor:
    """Return int64 [num_rows]: the id of each row's largest value, the smallest id of a tie; NaN counts as largest.

    On CPUs numpy's argmax is some twenty times as fast as torch's and starts no threads.
    """
    if values.device.type == "cpu":
        return torch.from_numpy(values.numpy().argmax(axis=-1))
    return values.argmax(dim=-1)
