"""Windows of event time and of counts, and what is computed over them."""
