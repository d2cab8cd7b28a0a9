"""One module for each command: read, call, write, report."""
