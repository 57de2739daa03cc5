"""From a config to a plan: everything that can be settled, and refused, before any process of the run starts."""

from penstock.planning.beginning import Beginning, beginning
from penstock.planning.functions import check_functions
from penstock.planning.games import check_ports
from penstock.planning.new_run import check_new_run
from penstock.planning.plans import check_fits, check_plan, plan
from penstock.planning.prepared import Prepared, prepare
from penstock.planning.table_size import check_sequences

__all__ = [
    "Beginning",
    "Prepared",
    "beginning",
    "check_fits",
    "check_functions",
    "check_new_run",
    "check_plan",
    "check_ports",
    "check_sequences",
    "plan",
    "prepare",
]
