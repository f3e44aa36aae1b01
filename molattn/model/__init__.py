"""The model: network, configuration, saving and uncertainty."""
