"""The heap gives large blocks back to the system, however large the blocks were that were freed before."""

import subprocess
import sys

import pytest

HEAP = """
import ctypes, sys
from penstock.memory.heap import map_large_blocks

class Facts(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

def mapped():
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = Facts
    return library.mallinfo2().hblkhd

if sys.argv[1] == "fixed":
    map_large_blocks()
large = bytes(4 << 20)
del large
before = mapped()
block = bytes(1 << 20)
print(mapped() - before >= len(block))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the C library is another one")
@pytest.mark.parametrize(("how", "is_mapped"), [("fixed", "True"), ("as glibc begins", "False")])
def test_a_large_block_is_mapped_also_after_a_larger_one_was_freed(how: str, is_mapped: str) -> None:
    # In a process of its own: the setting stays.
    done = subprocess.run([sys.executable, "-c", HEAP, how], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == is_mapped
