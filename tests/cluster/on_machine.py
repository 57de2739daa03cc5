"""penstock's command line on one of the machines of a test's cluster: its address, then the words."""

import sys
from functools import partial

import ray

from penstock.cli import main

if __name__ == "__main__":
    machine, *words = sys.argv[1:]
    # Ray would take the address of whichever machine of this computer has begun last.
    ray.init = partial(ray.init, _node_ip_address=machine)  # type: ignore[assignment]
    sys.exit(main(words))
