"""A report of jobs: what they reached and how, for people to send each other."""
