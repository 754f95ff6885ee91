"""Rules whose state is smaller than the parameters' moments, or that touch few rows."""
