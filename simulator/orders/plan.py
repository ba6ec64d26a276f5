"""What the kernel needs beside a block's own scores, made ready once per head and order."""

from __future__ import annotations

import numpy as np

from simulator.orders.memory import aligned

NAMES = ("score", "size", "ties", "token", "hit_rank", "parent", "depth")  # kernel.Rows
KINDS = ("f8", "i4", "i4", "i4", "i2", "i2", "u1")


class Plan:
    """An order's rule, a head's bias rows and work space, as numbers and addresses for `grow`.

    kind: kernel.Scores.kind. rule: the fields of kernel.Rule. Work space is kept from block to
    block, because fresh pages cost more: not to be shared between threads.
    """

    __slots__ = ("depths", "grow", "kept", "key", "layouts", "nodes", "numbers")

    def __init__(self, key: tuple, kind: int, rule: tuple, head, depths: int) -> None:
        from simulator.orders import kernel  # numba: only when a table is to be built

        nodes, branch, cap, by_depth, calibrated, *reals, places = rule
        bias, vocab, banned = head.bias(), head.vocab_size, head.banned
        work = _work(kernel, vocab, depths, nodes, branch)
        self.kept = (*bias, banned, np.array(reals), np.ascontiguousarray(places), *work)
        numbers = [kind, nodes, branch, cap, depths, by_depth, calibrated]
        numbers += [vocab, head.w1.shape[1], len(bias[3]), len(banned), len(places)]
        assert len(numbers) == kernel.NUMBERS
        assert all(array.flags.c_contiguous for array in self.kept)  # `grow` sees addresses alone
        self.numbers = np.array([*numbers, *(x.ctypes.data for x in self.kept)], np.int64)
        self.key, self.nodes, self.depths, self.grow = key, nodes, depths, kernel.grow
        self.layouts: dict[int, tuple[np.dtype, np.ndarray]] = {}  # by number of anchors

    def layout(self, n: int) -> tuple[np.dtype, np.ndarray]:
        """The layout of kernel.Rows for n anchors, and the numbers of rows: (n,), read-only."""
        shapes = {"size": (n,), "ties": (n,), "hit_rank": (n, self.depths)}
        pairs = zip(NAMES, KINDS, strict=True)
        fields = [(name, kind, shapes.get(name, (n, self.nodes))) for name, kind in pairs]
        numbers = np.arange(n)
        numbers.setflags(write=False)
        return self.layouts.setdefault(n, (np.dtype(fields), numbers))


def _work(kernel, vocab: int, depths: int, nodes: int, branch: int) -> list[np.ndarray]:
    """The arrays of kernel.Block, kernel.Laws and kernel.Tree."""
    slots, wide, blocks = max(nodes, depths), kernel.padded(vocab), kernel.blocks(vocab)
    peaks = -(-blocks // (4 * kernel.LANES)) * 4
    block = ["f", (depths, wide), (depths,), (vocab,), (branch,), "i", (vocab + 1,)]
    laws = ["i", (slots, branch), "f", (slots, branch), "i", (slots,), "b", (slots,)]
    laws += ["f", (slots,), "i", (slots,), (slots,), "f", (slots,), (slots, blocks), (slots, peaks)]
    node = (nodes + 1,)
    tree = ["i", node, node, node, node, "f", node, node, "b", node, "i", node, "b", node]
    tree += ["f", (slots, branch), "i", (slots,), (depths,), "f", node, "i", node]
    kinds, kind, arrays = {"f": np.float64, "i": np.int64, "b": np.bool_}, None, []
    for item in block + laws + tree:
        if isinstance(item, str):
            kind = kinds[item]
        else:
            arrays.append(aligned(item, kind, 0))
    return arrays
