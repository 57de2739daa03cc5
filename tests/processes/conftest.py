"""Selects the tests of this folder that a system can run."""

from penstock.processes.starts import FORKS

# Some systems fork no processes from a template (see FORKS), so there is nothing to test. test_warden.py tests how
# processes start. Such tests are not collected instead of skipped, so that a skipped test is always a mistake.
collect_ignore = [] if FORKS else ["test_template.py"]
