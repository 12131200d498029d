"""Cua-S1, a one-pass chooser of computer actions; this module loads nothing: import from others."""
