"""Early detection: a running write yields to one that is ahead of it and has announced a file."""
