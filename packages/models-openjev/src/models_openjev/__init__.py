"""Open-Jev decision models: every candidate answer is scored on its own."""
