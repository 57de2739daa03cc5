"""Projects to begin with: each folder here is one, with files that run as they are. `write_project` copies one."""

from penstock.templates.project import write_project

__all__ = ["write_project"]
