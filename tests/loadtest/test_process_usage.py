"""loadtest/process_usage.py: CPU time and peak memory of a process tree."""

import os
import subprocess
import sys

import pytest

from loadtest.process_usage import forget_peak, process_tree, usage

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

CHILD = """
import time
end = time.process_time() + 0.1
while time.process_time() < end:
    pass
print(len(bytearray(64 << 20)), flush=True)
input()
"""


def test_usage_of_a_child_grows_and_its_peak_can_be_forgotten() -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    assert child.pid in process_tree(os.getpid())
    assert process_tree(child.pid) == [child.pid]
    peak = usage(child.pid)
    assert peak.cpu_s >= 0.08
    assert peak.peak_mib > 64
    forget_peak(child.pid)
    assert usage(child.pid).peak_mib < peak.peak_mib - 50
    child.communicate(b"\n")
    assert usage(child.pid).cpu_s == 0.0
