"""REINFORCE with a learned baseline (Williams 1992, https://doi.org/10.1007/BF00992696), as an algorithm of your own.

From the folder above: `penstock train --env CartPole-v1 --algo own_algorithm --timesteps 200_000`
"""
