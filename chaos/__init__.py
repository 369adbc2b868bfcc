"""Proof that nothing is lost: faults on a virtual clock, faults in real processes, pressure."""
