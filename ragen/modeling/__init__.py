"""Running any Hugging Face decoder; nothing here knows reinforcement learning."""
