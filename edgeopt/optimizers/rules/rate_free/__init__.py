"""Rules that find the learning rate, or the schedule, by themselves."""
