"""Keeping the platform as its files say: ``sync`` (from the tenants' files), and after every run ``clean_up`` (what it leaves).

``python -m trainyard.upkeep`` runs either; the first is also ``trainyard sync``, the second the last pod of every run.
"""
