"""Tables: read, sanitized, and written whole or not at all."""
