"""What is settled by looking at the model: frozen statistics, parameters without gradient, unsuitable outputs."""
