"""Environment of the compute libraries: the one place that sets it, before any of them is imported."""

import os

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def set_compute_threads(num_threads: int) -> None:
    """Make OpenMP and BLAS use `num_threads` threads in this process; 0 leaves their own choice (physical cores).

    Has an effect only before numpy and torch are imported, which read these variables once.
    """
    if num_threads > 0:
        for name in THREAD_VARIABLES:
            os.environ[name] = str(num_threads)
