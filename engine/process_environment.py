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


def wait_without_spinning() -> None:
    """Let idle OpenMP threads of this process sleep at once, unless the user has set OMP_WAIT_POLICY.

    By default they spin between parallel regions, and the service, the dashboard and a load generator share the
    engine's cores: on two cores that were busy otherwise a step of eight rows took 105 to 328 ms asleep, while most
    runs that spun took over 2 s; on a quiet machine spinning was about a tenth faster.
    Has an effect only before torch is imported.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
