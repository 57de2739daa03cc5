"""penstock's command line on one of the machines of a test's cluster: its address, the cluster's, then the words."""

import logging
import sys

import ray

from penstock.cli import main

if __name__ == "__main__":
    machine, cluster, *words = sys.argv[1:]
    ray.init(address=cluster, _node_ip_address=machine, log_to_driver=False, logging_level=logging.ERROR)
    sys.exit(main(words))
