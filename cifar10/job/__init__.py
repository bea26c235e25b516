"""The files of a job dir: checkpoints, configuration, metrics, each with reader and writer."""
