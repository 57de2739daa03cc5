"""A program's edges laid out in one shared segment, and a node's ports over them. Starts nothing, schedules nothing."""
