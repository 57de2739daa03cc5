"""Asks ``supports`` of an algorithm's ``fused.py`` whether the native update can run a policy. Imports no torch."""

from typing import Any

from penstock.algorithm_lookup import load_functions
from penstock.policies import PolicyGraph
from penstock.updates.calls import UsersFunction

__all__ = ["serves"]


def serves(name: str, supports: str, policy: PolicyGraph, settings: Any) -> bool:  # noqa: ANN401 - of any class
    """Whether the native update can run this policy with these settings.

    Args:
        name: of the algorithm, as the user gave it.
        supports: ``module:function``.
        policy: of the algorithm's spec.
        settings: of the algorithm.

    Raises:
        ConfigError: the function is missing or fails, or gives no bool.
    """
    users = UsersFunction(name, *supports.split(":"))
    found = users.call(load_functions(supports), policy, settings)
    if not isinstance(found, bool):
        raise users.wrong(f"gives {found!r}; return True or False")
    return found
