"""S3: the client, verified objects, conditional writes and markers. Nothing here knows what a run is but ``keys``."""
