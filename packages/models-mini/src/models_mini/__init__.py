"""The embedded starter model of system1: a small trained network in the wheel, on the CPU."""
