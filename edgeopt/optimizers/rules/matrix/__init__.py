"""Rules that treat a weight as a matrix: orthogonal steps and preconditioners."""
