"""Reports on jobs: their settings, results and curves, as a page or as a table."""
