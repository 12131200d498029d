"""Random weights at true sizes, for benchmarks; import from the modules, none loads torch here."""
