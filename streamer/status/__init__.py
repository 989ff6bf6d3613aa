"""The status of a process, as JSON for programs and as a page for people."""
