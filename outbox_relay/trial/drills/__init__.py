"""The drills, one per file; each can be run by a test (20 of each) or by `make drill` (300 of each)."""
