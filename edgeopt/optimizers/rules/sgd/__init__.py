"""Rules of the gradient, its momentum or its sign."""
