"""Archives and own images, records and manifest, batches."""
