"""The serving program: it embeds, searches, builds the prompt and streams the cited answer."""
