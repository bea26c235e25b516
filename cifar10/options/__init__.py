"""What a person can choose, each option declared once."""
