"""Requests to the JetStream API and what travels in them: subjects, models, capabilities, permissions, names."""
