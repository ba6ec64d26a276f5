"""Training the small pair, reproducibly."""
