"""Front ends: from a model in some framework's own form to the graphs that `edgeopt.training` composes."""
