"""Rotary frequencies of a model: one implementation for every executor."""

import math

import numpy as np
from numpy.typing import NDArray

from engine.model.spec import DecoderSpec, RopeScaling


def inverse_frequencies(spec: DecoderSpec) -> NDArray[np.float64]:
    """Return the angle, in radians per position, of each rotated pair.

    Pair i of a head turns by position * theta^(-2i / head_dim), stretched as `spec.rope_scaling` says
    (Su et al., RoFormer, arXiv 2104.09864; Llama 3.1 for the llama3 stretch).

    Returns:
        float64 [head_dim / 2]; executors round to their own type.
    """
    exponents = np.arange(0, spec.head_dim, 2, dtype=np.float64) / spec.head_dim
    frequencies = spec.rope_theta**-exponents
    scaling = spec.rope_scaling
    if scaling is None:
        return frequencies
    match scaling.kind:
        case "linear":
            return frequencies / scaling.factor
        case "per_frequency":
            return frequencies / np.asarray(scaling.factors, dtype=np.float64)
        case "llama3":
            return _llama3(frequencies, scaling)


def _llama3(frequencies: NDArray[np.float64], scaling: RopeScaling) -> NDArray[np.float64]:
    """Divide wavelengths past the trained context by the factor, keep the short ones, blend linearly between."""
    turns = scaling.original_max_positions * frequencies / (2 * math.pi)
    kept = np.clip((turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor), 0.0, 1.0)
    return frequencies * (kept + (1.0 - kept) / scaling.factor)
