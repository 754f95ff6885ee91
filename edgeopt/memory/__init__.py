"""What a training step needs of memory, foretold from its graph."""
