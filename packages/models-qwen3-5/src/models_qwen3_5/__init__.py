"""The Qwen3.5 backbone and the plain reader; import from the modules, none loads torch here."""
