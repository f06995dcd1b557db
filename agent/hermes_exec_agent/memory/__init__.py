"""What an agent remembers between conversations."""
