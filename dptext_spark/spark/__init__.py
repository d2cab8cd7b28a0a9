"""Spark around the work: sessions, Java, the bundle on executors, failures and progress."""
