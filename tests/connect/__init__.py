"""Publishers, sources and imports, against real servers."""
