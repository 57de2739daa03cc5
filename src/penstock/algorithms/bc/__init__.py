"""Behaviour cloning: imitates the actions of demonstrations (Pomerleau 1991, https://doi.org/10.1162/neco.1991.3.1.88)."""
