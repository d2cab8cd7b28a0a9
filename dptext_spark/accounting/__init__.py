"""What releases lose together: privacy loss distributions of words, and what they add up to."""
