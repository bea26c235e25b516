"""Reports: what jobs reached and how, on one page or as a table."""
