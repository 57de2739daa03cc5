"""What is kept of a run: its folder, its checkpoints, its card, its plots."""
