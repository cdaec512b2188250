"""Settings of the compute libraries for every test, made before any of them is imported."""

import os

# OpenMP threads that wait by spinning cost whole scheduler slices each time the machine's cores are shared with the
# servers, browsers and engines that tests start.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
