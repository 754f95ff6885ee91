"""Rules that divide each element by an average of its squares: Adam and its kin."""
