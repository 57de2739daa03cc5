"""Rounds over torch.distributed, for learners on several machines. Needs torch, so it is loaded where it is used."""

from penstock.gradient_exchange.process_group.rounds import ProcessGroupRounds, build

__all__ = ["ProcessGroupRounds", "build"]
