"""Rules that measure second derivatives, or what enters and leaves layers."""
