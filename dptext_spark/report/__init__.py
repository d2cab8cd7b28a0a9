"""Reports of the jobs: facts as JSON, sentences and pages; never the content of a row."""
