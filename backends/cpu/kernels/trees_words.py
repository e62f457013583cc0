"""The argument blocks of the kernels for tree ensembles: int64 words in this order (see blocks.py)."""

from mnnx.backends.cpu.kernels.blocks import Block


class TreeWalk(Block):
    """trees.leaves: the node [rows, trees] in which each row ends in each tree."""

    nodes: int  # four words each, see trees.py
    roots: int  # int32 per tree
    x: int
    target: int
    rows: int
    trees: int
    row_bytes: int


class TreeScores(Block):
    """trees.scores: what the leaves of each row vote for."""

    leaves: int
    spans: int  # per node: its first vote, and the one after its last
    targets: int  # int32 per vote
    weights: int  # float per vote
    scores: int
    voted: int  # a byte per score
    rows: int
    trees: int
    count: int  # scores of a row
    bases: int
    base_count: int
    names: int  # int64 per label
    labels: int  # int64 per row: its label, or where `has_names` the label's index
    one_target: int
    probabilities: int
    has_names: int
