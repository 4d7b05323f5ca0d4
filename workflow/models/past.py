"""The cache of modelling code from before transformers had a class for it."""

import torch


class Past:
    """Keys and values by layer, (batch, heads, positions, width) each, in the tuples that the model's code takes."""

    def __init__(self, layers: tuple) -> None:
        self.layers = layers

    def get_seq_length(self) -> int:
        """Return how many positions are held."""
        return self.layers[0][0].shape[2]

    def batch_repeat_interleave(self, count: int) -> None:
        """Hold every row ``count`` times."""
        self.layers = tuple(tuple(held.repeat_interleave(count, 0) for held in layer) for layer in self.layers)

    def batch_select_indices(self, rows: torch.Tensor) -> None:
        """Hold these rows alone."""
        self.layers = tuple(tuple(held[rows] for held in layer) for layer in self.layers)
