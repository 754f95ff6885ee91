"""Rules that scale the step of a tensor by norms of the whole tensor."""
