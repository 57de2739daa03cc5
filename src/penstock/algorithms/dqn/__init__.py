"""Deep Q-learning: double, dueling, n-step, prioritised, categorical (Mnih et al. 2015, https://doi.org/10.1038/nature14236)."""
