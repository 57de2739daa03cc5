"""Pure maths on arrays: returns, losses, distributions, optimizer steps, running statistics. Holds no state."""
