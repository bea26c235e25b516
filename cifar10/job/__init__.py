"""The files of a job dir: each format with its writer and reader."""
