"""The bounds of V-trace as settings, for every algorithm that corrects by it. The equations: `penstock.ops.vtrace`."""
