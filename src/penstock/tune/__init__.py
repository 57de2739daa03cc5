"""Many runs with different settings, on Ray Tune: ``penstock tune``. Each trial is a normal run in a folder of its own.

`penstock.tune.tuning` has ``tune``; `penstock.tune.trainable` has ``trainable``, for those who drive Ray Tune
themselves. These two and `penstock.tune.schedulers` import Ray.
"""
