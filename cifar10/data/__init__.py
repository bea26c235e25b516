"""Data: record files, manifest, input pipeline and augmentation; build/ makes record files."""
