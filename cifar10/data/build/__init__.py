"""Archives and image folders -> record files: what only the generator needs."""
