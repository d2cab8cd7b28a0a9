"""What the jobs leave beside their outputs: accounts in JSON and in plain words, without any row content."""
