"""Loads the fixtures, which live in one plugin per topic under tests/plugins."""

from __future__ import annotations

from importlib.util import find_spec

_TOPICS = ("postgres", "kafka", "processes", "node", "independent", "pooler")

pytest_plugins = [f"tests.plugins.{topic}" for topic in _TOPICS if find_spec(f"tests.plugins.{topic}")]
