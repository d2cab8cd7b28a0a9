"""True statistics from a released table: what anyone who knows the mechanism can compute."""
