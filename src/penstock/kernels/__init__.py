"""Native maths without torch: policies, noise, advantages, updates. Does not decide when they run."""
