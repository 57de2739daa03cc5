"""The settings of a run: frozen dataclasses, read from the command line, from TOML and from mappings."""
