"""The update of the parameters inside a graph: groups, slots, the calls of the rule."""
