"""What happens between steps."""
