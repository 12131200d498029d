"""A model that answers every question with its first option."""
