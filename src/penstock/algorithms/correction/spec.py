"""The largest importance weights of V-trace as settings, and what they may be. No torch."""

from dataclasses import dataclass

from penstock.config.fields import tunable
from penstock.errors import ConfigError

__all__ = ["VTraceConfig", "check_weights"]


@dataclass(frozen=True, kw_only=True)
class VTraceConfig:
    """The bounds of V-trace (Espeholt et al. 2018), by default those of IMPACT (Luo et al. 2019).

    The defaults are above 1, because weights that are cut at 1 have a mean below 1. Then a row counts less for the
    rows before it.
    """

    rho_bar: float = tunable(
        2.0,
        "largest importance weight of a row; more: less bias towards the policy that acted, but more variance "
        "(usual: 1 to 4)",
        min=1e-3,
    )
    c_bar: float = tunable(
        2.0,
        "largest importance weight of the rows behind it, at most rho_bar; less: the critic learns from fewer steps at "
        "a time (usual: 1 to 2)",
        min=0,
    )


def check_weights(config: VTraceConfig) -> None:
    """Check that V-trace converges with these bounds.

    Raises:
        ConfigError: ``c_bar`` is above ``rho_bar``.
    """
    rho_bar, c_bar = config.rho_bar, config.c_bar
    if c_bar > rho_bar:
        raise ConfigError(
            f"--c_bar {c_bar:g} is above --rho_bar {rho_bar:g}: V-trace (Espeholt et al. 2018) is known to converge "
            f"for rho_bar >= c_bar only; give --c_bar {rho_bar:g} or less, or a larger --rho_bar"
        )
