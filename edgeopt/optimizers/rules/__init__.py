"""The update rules, a room for each family. `descent` is what most of them share."""
