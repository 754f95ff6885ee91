"""What the gradient rules and the lowerings of LSTM, GRU and RNN share."""
