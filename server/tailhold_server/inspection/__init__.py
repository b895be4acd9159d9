"""What a server's image and volumes hold, looked at without loading any of it."""
