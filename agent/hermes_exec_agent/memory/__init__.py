"""What an agent remembers between conversations: the journal, and the database of long-term memory."""
