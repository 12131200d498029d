"""A model that takes as long as it is told to."""
