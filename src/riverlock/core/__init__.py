"""Words every layer shares: errors, types, time, fault points."""
