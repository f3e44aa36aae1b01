"""What a model knows of its errors."""
