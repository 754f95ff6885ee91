"""What rules compute with: averages, norms, matrices, branches. Nothing here knows a rule."""
