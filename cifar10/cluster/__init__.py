"""The tasks of a cluster, their roles, and how they communicate."""
