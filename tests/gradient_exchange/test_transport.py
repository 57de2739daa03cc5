"""Which transport carries rounds, and what travels from GPU to GPU. None of it needs a GPU."""

from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch._C._distributed_c10d import TCPStore

from penstock.gradient_exchange.gossip import Gossip
from penstock.gradient_exchange.process_group import gloo, rendezvous
from penstock.gradient_exchange.process_group.nccl import OnGpus
from penstock.gradient_exchange.process_group.transport import Group as Connected
from penstock.gradient_exchange.process_group.transport import TransportName, chosen, gpu_of
from tests.gradient_exchange.test_process_group import (
    STATE,
    Group,
    Held,
    Notices,
    entered,
    gradient,
    member_over_gloo,
    state,
    together,
)


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        (("GPU-a", "GPU-b"), "nccl"),
        (("", ""), "gloo"),
        # One machine has no GPU, or a torch without NCCL.
        (("GPU-a", ""), "gloo"),
        # Two learners of one machine share its GPU.
        (("GPU-a", "GPU-b", "GPU-a"), "gloo"),
    ],
)
def test_nccl_joins_learners_with_a_gpu_each_and_gloo_all_others(gpus: tuple[str, ...], expected: str) -> None:
    assert chosen(gpus) == expected


def test_a_device_is_named_by_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {"cuda:1": type("Properties", (), {"uuid": "GPU-b"})}
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties[str(device)])
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    assert (gpu_of("cpu"), gpu_of("cuda:1")) == ("", "GPU-b")
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    assert gpu_of("cuda:1") == ""


def over_gloo(kind: TransportName, store: TCPStore, me: int, members: int, *, address: str, device: str) -> Connected:
    """Connect. In place of NCCL, tensors go through `OnGpus` over gloo, with the CPU in place of a GPU."""
    group = gloo.connect(store, me, members, address)
    return OnGpus(group._group, torch.device(device)) if kind == "nccl" else group


@pytest.mark.parametrize(("gpus", "expected"), [(["GPU-a", "GPU-b"], "nccl"), (["GPU-a", "GPU-a"], "gloo")])
def test_all_take_the_transport_that_the_keeper_chose(
    monkeypatch: pytest.MonkeyPatch, gpus: list[str], expected: str
) -> None:
    taken, left = [], list(gpus)

    def connected(kind: TransportName, *members: Any, **where: str) -> Connected:
        taken.append(kind)
        return over_gloo(kind, *members, **where)

    monkeypatch.setattr(rendezvous, "gpu_of", lambda device: left.pop(0))
    monkeypatch.setattr(rendezvous, "connected", connected)
    group = Group(2)
    teams = [group.member(0), group.member(1)]
    found = together(*(partial(entered, team, state(number)) for number, team in enumerate(teams)))
    # All begin with the keeper's state.
    assert all((own["critic"] == 0).all() for own in found)
    means = together(*(partial(team, "loss", gradient(number), 1.0) for number, team in enumerate(teams)))
    expected_mean = np.mean([gradient(0)["critic"], gradient(1)["critic"]], axis=0)
    for mean in means:
        np.testing.assert_allclose(mean["critic"], expected_mean, rtol=1e-5, atol=1e-6)
    assert taken == [expected] * 2


def test_learners_with_a_gpu_each_take_the_mean_of_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The states are k. The neighbours of 0 are 3 and 1, so it gets 4 / 3; and so on round the ring."""
    gpus = ["GPU-a", "GPU-b", "GPU-c", "GPU-d"]
    monkeypatch.setattr(rendezvous, "gpu_of", lambda device: gpus.pop())
    monkeypatch.setattr(rendezvous, "connected", over_gloo)
    board = Notices()
    ends = [member_over_gloo(board, 4, STATE, me) for me in range(4)]

    def life(me: int) -> float:
        team, held = Gossip(ends[me], me=me, alive=lambda: False), Held(me)
        entered(team, held.state())
        assert isinstance(ends[me]._group, OnGpus)
        team.settle(held)
        return float(held.values["critic"][0, 0])

    assert together(*(partial(life, me) for me in range(4))) == pytest.approx([4 / 3, 1.0, 2.0, 5 / 3])


class Waiting:
    """Work of a member that waits for a lost one, and its group."""

    aborted = False

    def broadcast(self, tensors: list[torch.Tensor], opts: object) -> "Waiting":
        del tensors, opts
        return self

    def is_completed(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


def test_a_round_of_gpus_that_waits_for_a_lost_member_is_ended() -> None:
    torn = Waiting()
    group = OnGpus(torn, torch.device("cpu"))
    work = group.tell(torch.zeros(1))
    with pytest.raises(RuntimeError, match="not over"):
        work.wait(timedelta(seconds=0.01))
    assert group.end()
    assert work.is_completed()
