"""A user's own model package: it is not part of the platform, and imports nothing of it."""
