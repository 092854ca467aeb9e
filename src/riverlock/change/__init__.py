"""State under changed code: what is kept, widened, migrated or refused."""
