"""The tasks of a cluster and what they say to each other."""
