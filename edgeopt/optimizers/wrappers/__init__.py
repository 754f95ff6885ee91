"""What goes around any rule: averages of the weights, slow copies, learned scales."""
