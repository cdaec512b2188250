"""Rotary frequencies of a model: one angle per pair of head dimensions and position."""

import math

import numpy as np
from numpy.typing import NDArray

from engine.model.spec import DecoderSpec


def rotary_frequencies(spec: DecoderSpec) -> NDArray[np.float64]:
    """Return float64 [head_dim / 2]: radians per position for each rotated pair, scaling applied.

    Pair i turns by position * theta^(-2i / head_dim) (RoFormer, arXiv 2104.09864). `linear` divides every frequency
    by the factor. `llama3` divides those whose wavelength is longer than original_max_positions / low_freq_factor,
    keeps those shorter than original_max_positions / high_freq_factor, and blends in between (Llama 3.1).
    """
    exponents = np.arange(0, spec.head_dim, 2, dtype=np.float64) / spec.head_dim
    frequencies = spec.rope_theta**-exponents
    scaling = spec.rope_scaling
    if scaling is None:
        return frequencies
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    turns = scaling.original_max_positions * frequencies / (2 * math.pi)  # full turns within the original context
    blend = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    keep = np.clip(blend, 0.0, 1.0)
    return keep * frequencies + (1 - keep) * frequencies / scaling.factor
