"""Operations: redrive, replay, rewind and purge of many as stored rows that any process can run."""
