"""Native maths without torch: the policy's forward pass, noise, advantages. Decides nothing about when they run."""
