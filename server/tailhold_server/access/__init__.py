"""Who may ask, how much, and over what wire."""
