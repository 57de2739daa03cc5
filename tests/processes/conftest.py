"""What of these tests a system can run at all."""

from penstock.processes.starts import FORKS

# Where nothing is forked from a template (see FORKS) there is nothing to test; test_warden.py has how processes start.
# Not collected instead of skipped, so that a skipped test is always a mistake.
collect_ignore = [] if FORKS else ["test_template.py"]
