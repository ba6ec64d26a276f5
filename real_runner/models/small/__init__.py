"""The small pair: models, weights, loading."""
