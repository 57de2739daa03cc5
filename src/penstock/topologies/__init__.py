"""From a plan to a program: which nodes, how many, wired how. One file a data pattern."""
