"""Offline data preparation for Ingot: from text files to token shards (see docs/data.md)."""
