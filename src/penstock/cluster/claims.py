"""Claims: resources that Ray keeps for the nodes of a run and gives to no other program. Each is a placement group."""

import contextlib
import secrets
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from penstock.cluster.door import Door
from penstock.cluster.listing import cluster_address, own_id, ray_names
from penstock.cluster.machines import Machine
from penstock.config.fields import amounts_text
from penstock.errors import ConfigError

__all__ = ["Claims", "release_claims"]

WAIT_S = 30
"""Seconds for which a run that begins waits for resources that other programs hold."""


class Claims:
    """Claims of placement groups of nodes, by their names. All end with the ``with`` block.

    Attributes:
        run: names the run that has them, for `release_claims`.
    """

    def __init__(self) -> None:
        self.run = f"penstock-{secrets.token_hex(8)}"
        self._held: dict[str, Any] = {}
        self._open: dict[str, Any] = {}
        self._left: list[Any] = []
        """Claims that have ended and that Ray still keeps, because its head did not answer."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not _head_answers():
            # Asked once: the head of a run with many claims may be lost.
            return
        for group in (*self._held, *self._open):
            self.release(group)
        self._remove_left()

    def take(self, group: str, machine: Machine | None, asked: Mapping[str, float]) -> None:
        """Claim what a group asks for on a machine, in place of its earlier claim. Does not wait.

        Args:
            group: its name.
            machine: where it runs; ``None``: the launcher's machine.
            asked: resources; a group that asks for nothing has no claim.
        """
        self.release(group)
        # Without the head there are no claims. It comes back, or the run ends soon: see `penstock.cluster.head`.
        if asked and _head_answers():
            where = {"ray.io/node-id": own_id() if machine is None else machine.id}
            # A name is free again only some time after its claim was released.
            name = f"{self.run}-{group}-{secrets.token_hex(4)}"
            self._held[group] = placement_group([ray_names(asked)], name=name, bundle_label_selector=[where])

    def ask(self, group: str, asked: Mapping[str, float]) -> None:
        """Ask for a group's resources on any machine, in place of its earlier claim. Does not wait.

        Ray's autoscaler starts machines for resources that the cluster lacks.
        """
        self._ask(group, asked, {})

    def ask_elsewhere(self, group: str, asked: Mapping[str, float]) -> None:
        """As `ask`, on any machine but the launcher's."""
        self._ask(group, asked, {"ray.io/node-id": f"!{own_id()}"})

    def _ask(self, group: str, asked: Mapping[str, float], where: dict[str, str]) -> None:
        self.release(group)
        if not _head_answers():
            return
        name = f"{self.run}-{group}-{secrets.token_hex(4)}"
        self._open[group] = placement_group([ray_names(asked)], name=name, bundle_label_selector=[where])

    def wait(self, asked: Mapping[str, Mapping[str, float]]) -> None:
        """Wait until Ray keeps all that is claimed on a machine.

        Args:
            asked: group -> what it asks for, for the error.

        Raises:
            ConfigError: other programs hold it for too long.
        """
        until = time.monotonic() + WAIT_S
        for group, claim in self._held.items():
            # Ray counts in whole seconds, and does not look at all within less than one.
            if not claim.wait(max(1, round(until - time.monotonic()))):
                raise ConfigError(
                    f"--resources: other programs of the cluster hold {amounts_text(asked[group])} that {group} asks "
                    f"for, for {WAIT_S} s already; end one of them, or ask for less"
                )

    def release(self, group: str) -> None:
        """End the claims of a group, if it has any."""
        for claims in (self._held, self._open):
            if (claim := claims.pop(group, None)) is not None:
                self._left.append(claim)
        self._remove_left()

    def _remove_left(self) -> None:
        """Let Ray give back what has ended. If its head does not answer, that is for a later call."""
        # A cluster that is lost for good keeps nothing.
        while self._left and _head_answers():
            with contextlib.suppress(ray.exceptions.RayError):
                remove_placement_group(self._left.pop())


def _head_answers() -> bool:
    """Whether the cluster's head takes connections. If it does not, Ray's calls about claims wait for a minute."""
    return Door.at(cluster_address()).opens()


def release_claims(run: str) -> None:
    """Release the claims of a run whose launcher is lost. Ray would do so once it has noticed that.

    Args:
        run: see `Claims.run`.
    """
    with contextlib.suppress(ray.exceptions.RayError):
        for identity, claim in placement_group_table().items():
            if claim["name"].startswith(f"{run}-"):
                remove_placement_group(PlacementGroup(ray.PlacementGroupID.from_hex(identity)))
