"""Privacy accounting: events, their privacy costs, and the accountants; no data, no noise."""
