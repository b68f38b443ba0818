"""What releases cost: events, their laws, and the accountant; no data, no noise."""
