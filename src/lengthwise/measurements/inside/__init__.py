"""What measurements compute inside models, with PyTorch: attention weights, biases and parts of logits."""
