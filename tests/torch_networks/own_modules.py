"""Modules as users write them: good ones, and ones with a mistake each."""

import numpy as np
import torch
from torch import nn


class Plain(nn.Module):
    """A linear layer for the outputs and the value."""

    def __init__(self, spaces, outputs):
        super().__init__()
        self.layer = nn.Linear(3, outputs + 1)
        self.register_buffer("shift", torch.randn(outputs + 1))

    def forward(self, obs):
        y = self.layer(obs) + self.shift
        return y[:, :-1], y[:, -1]


class Frozen(Plain):
    """Its bias is not learned."""

    def __init__(self, spaces, outputs):
        super().__init__(spaces, outputs)
        self.layer.bias.requires_grad_(requires_grad=False)


class Drawing(Plain):
    """A frozen parameter from a generator without a seed."""

    def __init__(self, spaces, outputs):
        super().__init__(spaces, outputs)
        self.drawn = nn.Parameter(torch.from_numpy(np.random.default_rng().normal(size=4)), requires_grad=False)


class Roots(Plain):
    """Takes numbers of 9 or more only."""

    def forward(self, obs):
        return super().forward((obs - 9.0).sqrt())


class InTorch(Plain):
    def forward(self, obs):
        return super().forward(torch.cat((obs, obs), 1))


class Remembering(nn.Module):
    carry = {"h": 5, "count": 1}  # noqa: RUF012

    def __init__(self, spaces, outputs):
        super().__init__()
        self.cell, self.out = nn.GRUCell(3, 5), nn.Linear(6, outputs + 1)

    def forward(self, obs, carry):
        h, count = self.cell(obs, carry["h"]), carry["count"] + 1.0
        y = self.out(torch.cat((h, count), 1))
        return y[:, :-1], y[:, -1], {"h": h, "count": count}


class Several(nn.Module):
    """An image, a vector and a number, by name."""

    def __init__(self, spaces, outputs):
        super().__init__()
        self.eye = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(8))
        self.eye(torch.zeros(1, 3, 12, 12))
        self.word, self.out = nn.Embedding(5, 4), nn.Linear(8 + 3 + 4, outputs + 1)

    def forward(self, obs):
        eye = self.eye(obs["eye"].permute(0, 3, 1, 2).float() / 255.0)
        y = self.out(torch.cat((eye, obs["speed"], self.word(obs["word"])), 1))
        return y[:, :-1], y[:, -1]


class Values(nn.Module):
    def __init__(self, spaces, outputs):
        super().__init__()
        self.layer = nn.Linear(3, outputs)

    def forward(self, obs):
        return self.layer(obs)


class WrongShape(Plain):
    def forward(self, obs):
        outputs, value = super().forward(obs)
        return outputs[:, :-1], value


class ValueColumn(Plain):
    def forward(self, obs):
        outputs, value = super().forward(obs)
        return outputs, value.unsqueeze(1)


class Double(Plain):
    def forward(self, obs):
        outputs, value = super().forward(obs)
        return outputs.double(), value


class NotFinite(Plain):
    def forward(self, obs):
        outputs, value = super().forward(obs)
        return outputs / 0.0, value


class Random(Plain):
    def forward(self, obs):
        outputs, value = super().forward(obs)
        return outputs + torch.rand_like(outputs), value


class Mixing(Plain):
    def forward(self, obs):
        outputs, value = super().forward(obs)
        return outputs - outputs.mean(0), value


class Normed(Plain):
    def __init__(self, spaces, outputs):
        super().__init__(spaces, outputs)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, obs):
        return super().forward(self.norm(obs))


class Half(Plain):
    def __init__(self, spaces, outputs):
        super().__init__(spaces, outputs)
        self.layer = self.layer.half()


class Empty(nn.Module):
    def __init__(self, spaces, outputs):
        super().__init__()

    def forward(self, obs):
        return obs, obs[:, 0]


class Forgetting(Remembering):
    def forward(self, obs, carry):
        outputs, value, after = super().forward(obs, carry)
        return outputs, value, {"h": after["h"]}


class Raising(Plain):
    def forward(self, obs):
        raise KeyError("speed")


class Misnaming(Plain):
    """Asks for a field by its name in ``spaces.obs``."""

    def forward(self, obs):
        return super().forward(obs["obs.speed"])


class Branching(Plain):
    """Decides by a number: torch cannot export it."""

    def forward(self, obs):
        outputs, value = super().forward(obs)
        return (outputs, value) if bool(self.layer.bias.sum() > 0.0) else (-outputs, value)


class Singular(Plain):
    """An operation that ONNX does not have."""

    def forward(self, obs):
        outputs, value = super().forward(obs)
        return outputs, value + torch.linalg.svdvals(obs.unsqueeze(2))[:, 0]


class Few(Plain):
    """Right for eight rows."""

    def forward(self, obs):
        outputs, value = super().forward(obs)
        return outputs[:8], value


class Lazy(Plain):
    def __init__(self, spaces, outputs):
        super().__init__(spaces, outputs)
        self.lazy = nn.LazyLinear(3)


class InPlace(Plain):
    def forward(self, obs):
        obs *= 2.0
        return super().forward(obs)


class Counting(Plain):
    calls = 0

    def forward(self, obs):
        outputs, value = super().forward(obs)
        self.calls += 1
        return outputs + self.calls, value


class WithoutOutputs(Plain):
    def __init__(self, spaces):
        super().__init__(spaces, 2)


class Listed(Plain):
    """What it does with numbers of Python is lost in an export."""

    def forward(self, obs):
        outputs, value = super().forward(obs)
        return outputs, value + torch.tensor([row[0] for row in obs.tolist()])


class Crowded(Plain):
    """Answers many rows otherwise than few."""

    def forward(self, obs):
        outputs, value = super().forward(obs)
        return (outputs * 2.0, value) if len(obs) > 100 else (outputs, value)


class Recording(Plain):
    """Answers otherwise while gradients are recorded."""

    def forward(self, obs):
        outputs, value = super().forward(obs)
        return (outputs * 2.0, value) if torch.is_grad_enabled() else (outputs, value)


class Undeclared(Plain):
    """Takes and returns a carry, and does not say so."""

    def forward(self, obs, carry):
        outputs, value = super().forward(obs)
        return outputs, value, carry


class BadCarry(Plain):
    carry = {"h": "64"}  # noqa: RUF012


def nothing(spaces, outputs):
    return None


def number(spaces, outputs):
    return 3


class Judging(nn.Module):
    """A critic: linear in observation and action."""

    def __init__(self, spaces, outputs):
        super().__init__()
        self.layer = nn.Linear(3 + spaces.action.size, outputs)

    def forward(self, obs, action):
        return self.layer(torch.cat((obs, action), 1))


class Judged(Values):
    critic = Judging


def make_judged(spaces, outputs):
    return Judged(spaces, outputs)


class InfiniteJudge(Judging):
    def forward(self, obs, action):
        return self.layer(torch.cat((obs, action), 1)) / 0.0


class FlatJudge(Judging):
    def forward(self, obs, action):
        return super().forward(obs, action).squeeze(1)


class BlindJudge(Judging):
    """Takes no action."""

    def forward(self, obs):
        return self.layer(obs)


class BoldJudge(Judging):
    """Changes the action that it is given."""

    def forward(self, obs, action):
        action *= 2.0
        return super().forward(obs, action)


class DrawingJudge(Judging):
    """A buffer from a generator without a seed."""

    def __init__(self, spaces, outputs):
        super().__init__(spaces, outputs)
        self.register_buffer("noise", torch.from_numpy(np.random.default_rng().normal(size=4)))


class WithDrawingJudge(Values):
    critic = DrawingJudge


class WithInfiniteJudge(Values):
    critic = InfiniteJudge


class WithFlatJudge(Values):
    critic = FlatJudge


class WithBlindJudge(Values):
    critic = BlindJudge


class WithBoldJudge(Values):
    critic = BoldJudge


class RecallingJudge(Judging):
    carry = {"h": 5}  # noqa: RUF012


class WithRecallingJudge(Values):
    critic = RecallingJudge


class Recalling(nn.Module):
    """A memory, and no value."""

    carry = {"h": 5}  # noqa: RUF012

    def __init__(self, spaces, outputs):
        super().__init__()
        self.cell, self.out = nn.GRUCell(spaces.obs[0][1].size, 5), nn.Linear(5, outputs)

    def forward(self, obs, carry):
        h = self.cell(obs, carry["h"])
        return self.out(h), {"h": h}


class RecallingAndJudged(Recalling):
    critic = Judging
