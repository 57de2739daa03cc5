"""The settings of a run, one file for each group that the help shows. No file here decides what is ``auto``.

A group is a frozen dataclass: each field with its default, its bounds and its help text. `RunConfig` in
``config/schema.py`` has the fields of all groups.
"""
