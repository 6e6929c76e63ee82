"""Keeping the platform as its files say: ``sync`` (the tenants' files into teams, namespaces, buckets) and ``clean_up`` (what a run leaves).

``python -m trainyard.upkeep`` runs either; the first is also ``trainyard sync``, the second the last pod of every run.
"""
