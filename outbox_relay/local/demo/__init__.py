"""The demonstration: one real line through every part, with the answer lost on the way."""
